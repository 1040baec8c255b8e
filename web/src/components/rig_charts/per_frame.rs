//! A signal that is set once per animation frame, because a pointer moves more often than the screen is drawn.

use leptos::prelude::*;

/// The value for the next frame, and its signal.
pub struct PerFrame<T: 'static> {
    latest: StoredValue<Option<T>>,
    shown: RwSignal<T>,
}

impl<T> Clone for PerFrame<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for PerFrame<T> {}

impl<T: Clone + Send + Sync + 'static> PerFrame<T> {
    /// Creates the signal with an initial value.
    pub fn new(first: T) -> Self {
        Self { latest: StoredValue::new(None), shown: RwSignal::new(first) }
    }

    /// Shows a value in the next frame, replacing a pending one.
    pub fn set(self, value: T) {
        let (latest, shown) = (self.latest, self.shown);
        let waits = latest.try_update_value(|latest| latest.replace(value).is_some()).unwrap_or(true);
        if !waits {
            request_animation_frame(move || {
                // The chart may have been removed by then.
                if let Some(Some(value)) = latest.try_update_value(Option::take) {
                    drop(shown.try_set(value));
                }
            });
        }
    }

    /// Returns the shown value and subscribes to it.
    pub fn get(self) -> T {
        self.shown.get()
    }

    /// Returns the pending value, or else the shown one, without subscribing.
    pub fn get_untracked(self) -> T {
        self.latest.get_value().unwrap_or_else(|| self.shown.get_untracked())
    }
}
