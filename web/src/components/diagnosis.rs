//! Components of the page that explains out-of-memory messages.

pub mod bar;
pub mod candidates;
pub mod empty;
pub mod offers;
pub mod remedies;
