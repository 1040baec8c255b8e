//! The pages, with one module for each.

mod address;
mod budget;
mod compare;
mod demo;
mod diagnose;
mod embed;
mod gpus;
mod replay;
mod rig;
mod start;
mod trainer_address;
mod trainers;

pub use budget::BudgetPage;
pub use compare::ComparePage;
pub use demo::DemoPage;
pub use diagnose::DiagnosePage;
pub use embed::EmbedPage;
pub use gpus::GpusPage;
pub use replay::ReplayPage;
pub use rig::RigPage;
pub use start::StartPage;
pub use trainers::TrainersPage;
