//! A signal that is set once an animation frame: a pointer moves more often than a screen is drawn.

use leptos::prelude::*;

/// What waits for the next frame, and the signal it is for.
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
    /// With that to begin with.
    pub fn new(first: T) -> Self {
        Self { latest: StoredValue::new(None), shown: RwSignal::new(first) }
    }

    /// Shows that with the next frame, in the place of whatever waits for it.
    pub fn set(self, value: T) {
        let (latest, shown) = (self.latest, self.shown);
        let waits = latest.try_update_value(|latest| latest.replace(value).is_some()).unwrap_or(true);
        if !waits {
            request_animation_frame(move || {
                // The chart may be gone by then.
                if let Some(Some(value)) = latest.try_update_value(Option::take) {
                    drop(shown.try_set(value));
                }
            });
        }
    }

    /// What is shown.
    pub fn get(self) -> T {
        self.shown.get()
    }

    /// What is shown or about to be, without following it.
    pub fn get_untracked(self) -> T {
        self.latest.get_value().unwrap_or_else(|| self.shown.get_untracked())
    }
}
