//! One module a page.

mod budget;
mod diagnose;

pub use budget::BudgetPage;
pub use diagnose::DiagnosePage;
