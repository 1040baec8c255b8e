//! What changes in a view, behind one type a kind.
//!
//! Each closure in a view makes its own copy of the framework's code for it; a hundred of them were a third of the
//! page's size. Boxed, they share one.

use leptos::prelude::*;

/// Words, or an attribute's, that change.
pub fn words(mut words: impl FnMut() -> String + Send + 'static) -> Box<dyn FnMut() -> Option<String> + Send> {
    Box::new(move || Some(words()))
}

/// Words, or an attribute's, that come and go.
pub fn some_words(words: impl FnMut() -> Option<String> + Send + 'static) -> Box<dyn FnMut() -> Option<String> + Send> {
    Box::new(words)
}

/// A property or a class that is set and unset.
pub fn flag(flag: impl FnMut() -> bool + Send + 'static) -> Box<dyn FnMut() -> bool + Send> {
    Box::new(flag)
}

/// A part of a view that is made anew.
pub fn part<V: IntoView + 'static>(mut part: impl FnMut() -> V + Send + 'static) -> Box<dyn FnMut() -> AnyView + Send> {
    Box::new(move || part().into_any())
}
