//! A training run that somebody starts by himself, watched: a child process whose output passes through untouched, and
//! what is read from it.
