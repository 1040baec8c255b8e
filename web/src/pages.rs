//! One module a page.

mod budget;

pub use budget::BudgetPage;
