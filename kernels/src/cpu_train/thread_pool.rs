//! The spin-waiting thread pool, and slices shared between its threads.
//!
//! A training step of a small model consists of about fifty tasks of a few hundred microseconds, each divided among all
//! threads. A sleeping thread would wake up too late for its share. Therefore the threads spin for a while before they
//! sleep, which general-purpose pools do not.

use std::{
    any::Any,
    cell::Cell,
    hint,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

/// A fixed number of threads, including the calling thread.
#[derive(Debug)]
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// Parallel work: one task for each number below `n`.
#[derive(Clone, Copy)]
struct Job {
    work: *const (dyn Fn(usize) + Sync),
    n: usize,
}

// SAFETY: the target is `Sync` and outlives every use: `ThreadPool::for_each` waits for all workers.
unsafe impl Send for Job {}

struct Shared {
    job: Mutex<Option<Job>>,
    /// The number of announced jobs. Workers wait for it to change.
    round: AtomicUsize,
    /// The next unassigned task.
    next: AtomicUsize,
    /// The number of workers that have not finished the job.
    busy: AtomicUsize,
    /// Whether a job is running. Nested jobs run on the thread that requests them.
    taken: AtomicBool,
    closing: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    asleep: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("round", &self.round).finish_non_exhaustive()
    }
}

thread_local! {
    /// The thread's number within its pool, from 0.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// Polls before a waiting thread yields between polls, and before it sleeps: about 50 microseconds, and some
/// milliseconds.
const LOOKS_AWAKE: u32 = 1 << 10;
const LOOKS_IN_ALL: u32 = 1 << 13;

/// Polls a condition up to `looks` times. Returns whether it was met.
fn look(is_so: impl Fn() -> bool, looks: u32) -> bool {
    for i in 0..looks {
        if is_so() {
            return true;
        }
        if i < LOOKS_AWAKE { hint::spin_loop() } else { thread::yield_now() }
    }
    false
}

impl Shared {
    fn tasks(&self, job: Job) {
        // SAFETY: the job is valid while any thread works on it.
        let work = unsafe { &*job.work };
        let done = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let task = self.next.fetch_add(1, Ordering::Relaxed);
                if task >= job.n {
                    break;
                }
                work(task);
            }
        }));
        if let Err(panic) = done {
            self.next.store(job.n, Ordering::Relaxed);
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
    }

    fn work(&self, number: usize) {
        NUMBER.set(number);
        let mut seen = 0;
        loop {
            if !look(|| self.round.load(Ordering::Acquire) != seen, LOOKS_IN_ALL) {
                let mut job = self.job.lock().unwrap_or_else(PoisonError::into_inner);
                while self.round.load(Ordering::Acquire) == seen {
                    job = self.asleep.wait(job).unwrap_or_else(PoisonError::into_inner);
                }
            }
            if self.closing.load(Ordering::Acquire) {
                return;
            }
            seen = self.round.load(Ordering::Acquire);
            let job = *self.job.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(job) = job {
                self.tasks(job);
            }
            self.busy.fetch_sub(1, Ordering::Release);
        }
    }

    /// Announces a job to the workers, or the shutdown if `job` is `None`.
    fn announce(&self, job: Option<Job>) {
        let mut current = self.job.lock().unwrap_or_else(PoisonError::into_inner);
        *current = job;
        self.round.fetch_add(1, Ordering::Release);
        drop(current);
        self.asleep.notify_all();
    }
}

impl ThreadPool {
    /// Starts a pool of `threads` threads including the calling one, at least 1.
    ///
    /// # Errors
    /// The operating system cannot start more threads.
    pub fn new(threads: usize) -> Result<Self, std::io::Error> {
        let shared = Arc::new(Shared {
            job: Mutex::new(None),
            round: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            taken: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            panic: Mutex::new(None),
            asleep: Condvar::new(),
        });
        let mut thread_pool = Self { shared, workers: Vec::new() };
        for number in 1..threads {
            let shared = Arc::clone(&thread_pool.shared);
            let worker = thread::Builder::new().name(format!("compute-{number}"));
            // On an error, dropping the pool ends the threads started so far.
            thread_pool.workers.push(worker.spawn(move || shared.work(number))?);
        }
        Ok(thread_pool)
    }

    /// The number of threads, including the calling one.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work` for 0 to below `n`, divided among the threads. A nested call runs on its own thread alone.
    ///
    /// # Panics
    /// If a task panics.
    pub fn for_each(&self, n: usize, work: impl Fn(usize) + Sync) {
        let shared = &*self.shared;
        if n <= 1 || self.workers.is_empty() || shared.taken.swap(true, Ordering::Acquire) {
            return (0..n).for_each(work);
        }
        let work: &(dyn Fn(usize) + Sync) = &work;
        // SAFETY: only the lifetime changes; no thread uses the job after this function returns.
        let work = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), *const (dyn Fn(usize) + Sync)>(work) };
        let job = Job { work, n };
        shared.next.store(0, Ordering::Relaxed);
        shared.busy.store(self.workers.len(), Ordering::Relaxed);
        shared.announce(Some(job));
        shared.tasks(job);
        while !look(|| shared.busy.load(Ordering::Acquire) == 0, LOOKS_IN_ALL) {}
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        shared.taken.store(false, Ordering::Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Calls `work` for each piece of a slice, divided among the threads. The last piece may be shorter.
    pub fn for_each_piece(&self, data: &mut [f32], piece: usize, work: impl Fn(usize, &mut [f32]) + Sync) {
        let (n, len) = (data.len().div_ceil(piece), data.len());
        let data = DisjointSlice::new(data);
        self.for_each(n, |i| {
            // SAFETY: every piece is borrowed once.
            work(i, unsafe { data.part(i * piece, piece.min(len - i * piece)) });
        });
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.announce(None);
        for worker in self.workers.drain(..) {
            // Panics of a worker were already reported by its jobs.
            let _ = worker.join();
        }
    }
}

/// The number of rows of a task is a multiple of this.
const GRAIN: usize = 8;

/// The threads of a pool with a scratch buffer each.
///
/// A thread runs one task at a time, so its scratch buffer belongs to that task.
#[derive(Clone, Copy, Debug)]
pub struct Workers<'a> {
    pub thread_pool: &'a ThreadPool,
    scratch: DisjointSlice<'a>,
    len: usize,
}

impl<'a> Workers<'a> {
    /// Divides `scratch` among the threads of the pool.
    pub fn new(thread_pool: &'a ThreadPool, scratch: &'a mut [f32]) -> Self {
        let len = scratch.len() / thread_pool.threads();
        Self { thread_pool, scratch: DisjointSlice::new(scratch), len }
    }

    /// The scratch buffer of the calling thread.
    ///
    /// # Safety
    /// The current task must not hold the buffer already.
    #[expect(clippy::mut_from_ref, reason = "the caller guarantees exclusive access")]
    pub unsafe fn scratch(&self) -> &mut [f32] {
        // SAFETY: each thread has its own part.
        unsafe { self.scratch.part(NUMBER.get() * self.len, self.len) }
    }

    /// Calls `work` for disjoint ranges of rows 0 to below `n`, one per thread.
    ///
    /// Longer ranges amortise a product's copy of the weights.
    pub fn for_each_rows(self, n: usize, work: impl Fn(Rows) + Sync) {
        let len = n.div_ceil(self.thread_pool.threads()).next_multiple_of(GRAIN);
        self.thread_pool.for_each(n.div_ceil(len), |task| {
            let start = task * len;
            work(Rows { start, len: len.min(n - start) });
        });
    }
}

/// A range of rows, for every tensor with one row per token.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The first row.
    pub start: usize,
    /// The number of rows.
    pub len: usize,
}

impl Rows {
    /// These rows of a tensor with `width` elements per row.
    pub fn read(self, data: &[f32], width: usize) -> &[f32] {
        &data[self.start * width..][..self.len * width]
    }

    /// These rows of a tensor, mutably.
    ///
    /// # Safety
    /// No other reference to these rows of this tensor may exist.
    #[expect(clippy::mut_from_ref, reason = "the caller guarantees disjoint rows")]
    pub unsafe fn of<'a>(self, data: &'a DisjointSlice<'_>, width: usize) -> &'a mut [f32] {
        // SAFETY: promised by the caller.
        unsafe { data.part(self.start * width, self.len * width) }
    }
}

/// A slice of which threads write disjoint parts that `chunks_mut` cannot express, such as one head's columns.
#[derive(Clone, Copy, Debug)]
pub struct DisjointSlice<'a> {
    data: *mut f32,
    len: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: access is only through `part`, whose callers promise that live parts do not overlap.
unsafe impl Send for DisjointSlice<'_> {}
// SAFETY: as above.
unsafe impl Sync for DisjointSlice<'_> {}

impl<'a> DisjointSlice<'a> {
    /// Borrows the slice while its parts are in use.
    pub fn new(data: &'a mut [f32]) -> Self {
        Self { data: data.as_mut_ptr(), len: data.len(), borrow: PhantomData }
    }

    /// Returns a part of the slice.
    ///
    /// # Safety
    /// No overlapping part may be in use at the same time.
    ///
    /// # Panics
    /// If the part exceeds the slice.
    #[expect(clippy::mut_from_ref, reason = "the caller guarantees disjoint parts")]
    pub unsafe fn part(&self, start: usize, len: usize) -> &mut [f32] {
        assert!(start.checked_add(len).is_some_and(|end| end <= self.len), "a part lies in its slice");
        // SAFETY: within the slice, which is borrowed mutably for 'a; disjoint by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(start), len) }
    }
}

impl DisjointSlice<'_> {
    /// The address of element `at`, from which `reach` elements are within the slice.
    ///
    /// # Panics
    /// If they exceed the slice.
    pub fn start(&self, at: usize, reach: usize) -> *mut f32 {
        assert!(at.checked_add(reach).is_some_and(|end| end <= self.len), "a part lies in its slice");
        // SAFETY: `at` is within the slice.
        unsafe { self.data.add(at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_done_once() {
        for threads in [1, 2, 5] {
            let thread_pool = ThreadPool::new(threads).expect("threads");
            assert_eq!(thread_pool.threads(), threads);
            for n in [0, 1, 2, 7, 1000] {
                let done: Vec<_> = (0..n).map(|_| AtomicUsize::new(0)).collect();
                thread_pool.for_each(n, |task| {
                    assert!(NUMBER.get() < threads);
                    done[task].fetch_add(1, Ordering::Relaxed);
                });
                assert!(done.iter().all(|done| done.load(Ordering::Relaxed) == 1), "{n} tasks on {threads} threads");
            }
        }
    }

    #[test]
    fn work_within_work_is_done_where_it_is() {
        let thread_pool = ThreadPool::new(3).expect("threads");
        let done = AtomicUsize::new(0);
        thread_pool.for_each(4, |_| {
            thread_pool.for_each(5, |_| {
                done.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(done.into_inner(), 20);
    }

    #[test]
    fn threads_that_went_to_sleep_are_woken() {
        let thread_pool = ThreadPool::new(3).expect("threads");
        for _ in 0..3 {
            thread::sleep(std::time::Duration::from_millis(50));
            let numbers = Mutex::new(std::collections::BTreeSet::new());
            // Each task waits for the others, so the job ends only if all three threads take part.
            let together = std::sync::Barrier::new(3);
            thread_pool.for_each(3, |_| {
                together.wait();
                numbers.lock().expect("no panic").insert(NUMBER.get());
            });
            assert_eq!(numbers.into_inner().expect("no panic").len(), 3);
        }
    }

    #[test]
    fn panic_propagates_and_thread_pool_continues() {
        let thread_pool = ThreadPool::new(2).expect("threads");
        for guilty in 0..8 {
            let outcome = catch_unwind(AssertUnwindSafe(|| thread_pool.for_each(8, |task| assert_ne!(task, guilty))));
            assert!(outcome.is_err());
            let done = AtomicUsize::new(0);
            thread_pool.for_each(8, |_| {
                done.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(done.into_inner(), 8);
        }
    }
}
