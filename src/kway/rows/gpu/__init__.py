"""Search and linear models on a GPU through torch, which no other package of kway imports.

torch is loaded only if a device other than "cpu" is requested or a tensor is passed.

device.py            the device, copies to it and back, its free memory
tensor_rows.py       rows in a tensor that stays on the device
exact_search.py      exact nearest neighbors by float32 products that are verified in float64
int8_search.py       exact nearest neighbors behind a filter of int8 products
flat_search.py       flat indexes on the device, over full rows or codes
bit_codes.py         codes of a few bits per column: encoding and search
sign_codes.py        codes of 512 signs: search among a billion rows
generated_rows.py    synthetic rows that are hashes of their number
int8_kernels.py      Triton kernels of int8_search.py
code_kernels.py      Triton kernels of bit codes and of generated rows
tile_plans.py        pipeline stages of the Triton kernels that fit the shared memory of the GPU
cuda_kernels.py      CUDA C++ kernels, compiled at run time
linear_passes.py     passes of linear models: losses, gradients, Hessian-vector products, preconditioners
losses.py            values and gradients of the losses
stochastic_steps.py  SGD and sampled softmax
softmax_step.py      an SGD step of softmax over many classes
softmax_kernels.py   Triton kernels of softmax_step.py
class_scores.py      scores, probabilities and the best classes of rows
"""
