/*
 * What is typed into the search box, as a query for lunr, the search library of the theme.
 *
 * lunr reads a leading "-" as "without this word", so "--seed" finds nothing. The theme also takes each word as the
 * beginning of words, so a typed "i" or "a" matches hundreds of words. Here, a query becomes its words without marks,
 * common words and single letters. Each word counts four times if the text contains it exactly. Endings are removed
 * from the word that is searched as a beginning, so "regularize" finds "regularization". Words of other libraries are
 * replaced by those of these pages.
 */
"use strict";
(() => {
  const QUERY = 2, RESULT = 3; // types of the theme's messages
  const COMMON = new Set((
    "about after all also am an and any are as at be been before best but by can cannot could did do does doing for "
    + "from get give had has have he her here him how if in into is it its just like make many may me mine more "
    + "most much must my need no not of on one or other our out over own please possible set should so some such than "
    + "that the their them then there these they this those to too under up us use used using versus very vs want was way we "
    + "were what when where which while who whose why will with without would yes you your"
  ).split(" "));
  const ENDINGS = /(?:izations?|isations?|ations?|ization|izing|ising|ize[ds]?|ise[ds]?|ingly|ings?|edly|ed|ies|es|s|y|e)$/;

  const SYNONYMS = [ // what is typed, and the words of these pages
    [/neighbour/g, "neighbor"],
    [/\b(?:support|help ?desk) +tickets?\b/g, "classify texts"],
    [/\b(?:\d[\d.]* *% +)?positives\b|\brare (?:class(?:es)?|events?)\b/g, "imbalanced classes"],
    [/\b(?:incremental|online|continual)(?: (?:learning|training))?\b|\bwarm[ -]?start\b/g, "continue training"],
    [/\b(?:ensembles?|stack(?:ing|ed)|stacking ensemble)\b/g, "blend"],
    [/\bmulti[ -]label/g, "multilabel"],
  ];

  /* Return the part of a word that its other forms share. */
  function beginning(word) {
    const short = word.replace(ENDINGS, "");
    return short.length >= 4 && /^[a-z]+$/.test(word) ? short : word;
  }

  let searched = []; // words of the last query, each with its beginning

  function cleaned(query) {
    const known = SYNONYMS.reduce((text, [typed, word]) => text.replace(typed, word), query.toLowerCase());
    const words = known.split(/[^\p{L}\p{N}.]+|\.(?!\d)/u).filter(word => word);
    const telling = words.filter(word => !COMMON.has(word) && (word.length > 1 || /\d|[^a-z]/.test(word)));
    const kept = telling.length ? telling : words;
    searched = [...new Set(kept)].map(word => [word, beginning(word)]);
    const terms = searched.flatMap(([word, start]) => [`${word}^4`, start]);
    if (/(^|\s)["'`]*--\w/.test(query)) terms.push("options^4"); // the word above the tables of options
    return [...new Set(terms)].join(" ");
  }

  /* Name a word once in a result, found or missing, and no word that was not typed. */
  function named(terms) {
    return Object.fromEntries(searched.map(([word, start]) =>
      terms[word] || !terms[start] ? [word, Boolean(terms[word])] : [start, true]));
  }

  const { postMessage, addEventListener } = window.Worker.prototype;
  window.Worker.prototype.postMessage = function (message, ...rest) {
    const query = message && message.type === QUERY && typeof message.data === "string";
    return postMessage.call(this, query ? { ...message, data: cleaned(message.data) } : message, ...rest);
  };
  window.Worker.prototype.addEventListener = function (type, listener, ...rest) {
    const tidied = event => {
      if (event.data && event.data.type === RESULT) {
        for (const item of event.data.data.items.flat()) if (item.score) item.terms = named(item.terms);
      }
      listener.call(this, event);
    };
    return addEventListener.call(this, type, type === "message" ? tidied : listener, ...rest);
  };
})();
