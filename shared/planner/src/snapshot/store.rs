//! Tables of a snapshot: interned texts and stacks, and a list that grows without copying.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use super::Problem;

/// Items of one chunk of a [`Chunked`] list.
const CHUNK: usize = 1 << 16;

/// A list in chunks. It never moves its items, so a long list takes no more than its own memory.
#[derive(Clone, Debug)]
pub(super) struct Chunked<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Default for Chunked<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T> Chunked<T> {
    pub(super) fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    pub(super) fn push(&mut self, item: T) {
        match self.chunks.last_mut().filter(|last| last.len() < CHUNK) {
            Some(last) => last.push(item),
            None => {
                // The first chunk grows, so that a small snapshot takes little memory.
                let mut chunk = if self.chunks.is_empty() { Vec::new() } else { Vec::with_capacity(CHUNK) };
                chunk.push(item);
                self.chunks.push(chunk);
            }
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }
}

/// Distinct values with their numbers.
#[derive(Clone, Debug)]
pub(super) struct Interner<T: ?Sized + Eq + Hash> {
    numbers: HashMap<Arc<T>, u32>,
    values: Vec<Arc<T>>,
}

impl<T: ?Sized + Eq + Hash> Default for Interner<T> {
    fn default() -> Self {
        Self { numbers: HashMap::new(), values: Vec::new() }
    }
}

impl<T: ?Sized + Eq + Hash> Interner<T> {
    /// The number of a value; at most `limit` values are distinct.
    pub(super) fn number(&mut self, value: &T, limit: usize) -> Result<u32, Problem>
    where
        for<'a> Arc<T>: From<&'a T>,
    {
        if let Some(&number) = self.numbers.get(value) {
            return Ok(number);
        }
        let number = u32::try_from(self.values.len()).map_err(|_| Problem::TooMany)?;
        if self.values.len() >= limit {
            return Err(Problem::TooMany);
        }
        let value: Arc<T> = value.into();
        self.values.push(Arc::clone(&value));
        self.numbers.insert(value, number);
        Ok(number)
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn get(&self, number: u32) -> Option<&Arc<T>> {
        self.values.get(number as usize)
    }

    /// The values by their numbers.
    pub(super) fn into_values(self) -> Vec<Arc<T>> {
        self.values
    }
}
