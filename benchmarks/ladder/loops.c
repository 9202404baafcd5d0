/* out (n, m) = a (n, d) times b (m, d) transposed, by three loops over single numbers, in the order of the textbook. */
void product(const double *a, const double *b, double *out, long n, long m, long d)
{
    for (long i = 0; i < n; i++)
        for (long j = 0; j < m; j++) {
            double sum = 0;
            for (long k = 0; k < d; k++)
                sum += a[i * d + k] * b[j * d + k];
            out[i * m + j] = sum;
        }
}
