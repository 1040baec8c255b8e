//! Memos that share the framework's code.

use leptos::prelude::Memo;

/// Caches a value of signals. Recomputes it when a signal changes, and notifies readers if it differs.
pub fn memo<T: PartialEq + Send + Sync + 'static>(value: impl Fn() -> T + Send + Sync + 'static) -> Memo<T> {
    boxed(Box::new(value))
}

/// Instantiates the framework's code once per type, not once per closure.
fn boxed<T: PartialEq + Send + Sync + 'static>(value: Box<dyn Fn() -> T + Send + Sync>) -> Memo<T> {
    Memo::new(move |_| value())
}
