//! One module a page.

mod budget;
mod diagnose;
mod embed;

pub use budget::BudgetPage;
pub use diagnose::DiagnosePage;
pub use embed::EmbedPage;
