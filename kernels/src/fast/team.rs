//! The threads that compute, and how they share a slice.

use std::marker::PhantomData;

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder, prelude::*};

/// A fixed number of threads.
#[derive(Debug)]
pub struct Team {
    pool: ThreadPool,
    threads: usize,
}

impl Team {
    /// Starts that many threads, at least one.
    ///
    /// # Errors
    /// The system starts no more threads.
    pub fn new(threads: usize) -> Result<Self, ThreadPoolBuildError> {
        let threads = threads.max(1);
        let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("compute-{i}")).build()?;
        Ok(Self { pool, threads })
    }

    /// How many there are.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs something on the team, so that what it shares out is shared among these threads.
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.pool.install(work)
    }
}

/// Calls `work` for 0 to below `n`, shared among the threads of the team it is called on.
pub fn for_each(n: usize, work: impl Fn(usize) + Send + Sync) {
    match n {
        0 => {}
        1 => work(0),
        _ => (0..n).into_par_iter().with_max_len(1).for_each(work),
    }
}

/// The thread of the team that asks, from 0.
pub fn thread() -> usize {
    rayon::current_thread_index().unwrap_or(0)
}

/// A slice of which threads write disjoint parts that no `chunks_mut` can name, such as one head's columns.
#[derive(Clone, Copy, Debug)]
pub struct Disjoint<'a> {
    data: *mut f32,
    len: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: it hands out parts only through `part`, whose callers promise that no two that live at once overlap.
unsafe impl Send for Disjoint<'_> {}
// SAFETY: as above.
unsafe impl Sync for Disjoint<'_> {}

impl<'a> Disjoint<'a> {
    /// Takes the slice for as long as its parts are handed out.
    pub fn new(data: &'a mut [f32]) -> Self {
        Self { data: data.as_mut_ptr(), len: data.len(), borrow: PhantomData }
    }

    /// A part of the slice.
    ///
    /// # Safety
    /// No other part that overlaps this one is in use at the same time.
    ///
    /// # Panics
    /// The part leaves the slice.
    #[expect(clippy::mut_from_ref, reason = "that parts are disjoint is the caller's promise")]
    pub unsafe fn part(&self, start: usize, len: usize) -> &mut [f32] {
        assert!(start.checked_add(len).is_some_and(|end| end <= self.len), "a part lies in its slice");
        // SAFETY: within the slice, which is borrowed mutably for 'a; disjoint by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(start), len) }
    }
}

impl Disjoint<'_> {
    /// The address of an element from which `reach` elements lie in the slice.
    ///
    /// # Panics
    /// They leave it.
    pub fn start(&self, at: usize, reach: usize) -> *mut f32 {
        assert!(at.checked_add(reach).is_some_and(|end| end <= self.len), "a part lies in its slice");
        // SAFETY: `at` lies in the slice.
        unsafe { self.data.add(at) }
    }
}

/// Adds up what `leaf` makes of pieces of 0..n, in a tree that depends on `n` alone.
pub fn tree_sum(start: usize, end: usize, piece: usize, leaf: &(impl Fn(usize, usize) -> f64 + Sync)) -> f64 {
    if end - start <= piece {
        return leaf(start, end);
    }
    let middle = start + (end - start).div_ceil(2).next_multiple_of(piece).min(end - start);
    if middle == end {
        return leaf(start, end);
    }
    let (left, right) = rayon::join(|| tree_sum(start, middle, piece, leaf), || tree_sum(middle, end, piece, leaf));
    left + right
}
