//! Orders over a real history: what is taken, what is refused, and what is left of it.
