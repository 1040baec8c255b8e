//! Map from names to values as a sorted list. A config has dozens of names: a list is as fast as a tree, and needs a
//! fraction of the code in the page.

use std::ops::Index;

/// Maximum number of names. A text with more is not a config.
pub(super) const MAX_NAMES: usize = 4096;

/// Map from names to values, sorted by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names<T> {
    entries: Vec<(String, T)>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<T> Names<T> {
    fn place(&self, name: &str) -> Result<usize, usize> {
        self.entries.binary_search_by(|(known, _)| known.as_str().cmp(name))
    }

    /// Returns the value of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&T> {
        Some(&self.entries.get(self.place(name).ok()?)?.1)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        let at = self.place(name).ok()?;
        Some(&mut self.entries.get_mut(at)?.1)
    }

    /// Returns whether the name has a value.
    #[must_use]
    pub fn contains_key(&self, name: &str) -> bool {
        self.place(name).is_ok()
    }

    /// Sets the value of a name. Returns `false` if the name is new and the map is full.
    pub(super) fn insert(&mut self, name: &str, value: T) -> bool {
        match self.place(name) {
            Ok(at) => self.entries[at].1 = value,
            Err(_) if self.entries.len() >= MAX_NAMES => return false,
            Err(at) => self.entries.insert(at, (name.to_owned(), value)),
        }
        true
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Ok(at) = self.place(name) {
            self.entries.remove(at);
        }
    }

    /// Returns the number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Iterates over names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &T)> {
        self.entries.iter().map(|(name, value)| (name, value))
    }
}

/// # Panics
/// Panics if the name has no value.
impl<T> Index<&str> for Names<T> {
    type Output = T;

    #[expect(clippy::expect_used, reason = "as with every map")]
    fn index(&self, name: &str) -> &T {
        self.get(name).expect("the name has a value")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_in_order_and_once() {
        let mut names = Names::default();
        for (name, value) in [("b", 1), ("a", 2), ("c", 3), ("b", 4)] {
            assert!(names.insert(name, value));
        }
        names.remove("c");
        names.remove("d");
        assert_eq!(names.iter().map(|(name, value)| (name.as_str(), *value)).collect::<Vec<_>>(), [("a", 2), ("b", 4)]);
        assert_eq!((names.get("b"), names.get("c"), names["a"]), (Some(&4), None, 2));
    }

    #[test]
    fn there_is_room_for_so_many() {
        let mut names = Names::default();
        for i in 0..MAX_NAMES {
            assert!(names.insert(&format!("n{i}"), i));
        }
        assert!(!names.insert("one_more", 0) && names.insert("n7", 8));
        assert_eq!(names.len(), MAX_NAMES);
    }
}
