//! The threads that compute, and how they share work and slices.
//!
//! A training step of a small model is some fifty pieces of work of a few hundred microseconds, each shared by all
//! threads. A thread that sleeps between them is woken too late for its share, so that threads of a team wait for the
//! next piece awake, for a while; that is why the team is not a general pool.

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

/// A fixed number of threads, the one that asks among them.
#[derive(Debug)]
pub struct Team {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// Work that is shared out: a task for each number below `n`.
#[derive(Clone, Copy)]
struct Job {
    work: *const (dyn Fn(usize) + Sync),
    n: usize,
}

// SAFETY: what it points to is `Sync`, and outlives every worker's use of it: `Team::for_each` waits for them.
unsafe impl Send for Job {}

struct Shared {
    job: Mutex<Option<Job>>,
    /// Counts jobs; a change is what workers wait for.
    round: AtomicUsize,
    /// The next task that nobody has taken.
    next: AtomicUsize,
    /// Workers that are not done with the job.
    busy: AtomicUsize,
    /// A job is under way: what is asked for meanwhile is done where it is asked for.
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
    /// The thread's number within its team, from 0.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// Looks, by a thread that waits, before it lets others run between looks, and before it goes to sleep: about 50
/// microseconds, and some milliseconds.
const LOOKS_AWAKE: u32 = 1 << 10;
const LOOKS_IN_ALL: u32 = 1 << 13;

/// Looks until it is so, or until it has looked long enough.
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
        // SAFETY: the job is not over while a thread works at it.
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

    /// Tells the workers of a job, or that there is none any more.
    fn announce(&self, job: Option<Job>) {
        let mut current = self.job.lock().unwrap_or_else(PoisonError::into_inner);
        *current = job;
        self.round.fetch_add(1, Ordering::Release);
        drop(current);
        self.asleep.notify_all();
    }
}

impl Team {
    /// Starts that many threads, less the one that asks; at least none.
    ///
    /// # Errors
    /// The system starts no more threads.
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
        let mut team = Self { shared, workers: Vec::new() };
        for number in 1..threads {
            let shared = Arc::clone(&team.shared);
            let worker = thread::Builder::new().name(format!("compute-{number}"));
            // What was started already ends with the team.
            team.workers.push(worker.spawn(move || shared.work(number))?);
        }
        Ok(team)
    }

    /// How many there are.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work` for 0 to below `n`, shared among the threads; a task that shares out work of its own does it alone.
    ///
    /// # Panics
    /// A task panics.
    pub fn for_each(&self, n: usize, work: impl Fn(usize) + Sync) {
        let shared = &*self.shared;
        if n <= 1 || self.workers.is_empty() || shared.taken.swap(true, Ordering::Acquire) {
            return (0..n).for_each(work);
        }
        let work: &(dyn Fn(usize) + Sync) = &work;
        // SAFETY: only the lifetime changes; nobody holds the job when this function returns.
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

    /// The same for pieces of a slice; the last may be shorter.
    pub fn for_each_piece(&self, data: &mut [f32], piece: usize, work: impl Fn(usize, &mut [f32]) + Sync) {
        let (n, len) = (data.len().div_ceil(piece), data.len());
        let data = Disjoint::new(data);
        self.for_each(n, |i| {
            // SAFETY: every piece once.
            work(i, unsafe { data.part(i * piece, piece.min(len - i * piece)) });
        });
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.announce(None);
        for worker in self.workers.drain(..) {
            // A worker's panics were its jobs'.
            let _ = worker.join();
        }
    }
}

/// Tasks have a multiple of this many rows.
const GRAIN: usize = 8;

/// What the threads of a team compute with: a scratch for each.
///
/// A thread has one task at a time, so that its scratch is that task's.
#[derive(Clone, Copy, Debug)]
pub struct Crew<'a> {
    /// The threads.
    pub team: &'a Team,
    scratch: Disjoint<'a>,
    len: usize,
}

impl<'a> Crew<'a> {
    /// A crew whose scratch is cut out of one slice.
    pub fn new(team: &'a Team, scratch: &'a mut [f32]) -> Self {
        let len = scratch.len() / team.threads();
        Self { team, scratch: Disjoint::new(scratch), len }
    }

    /// The scratch of the thread that asks.
    ///
    /// # Safety
    /// The same task does not hold it already.
    #[expect(clippy::mut_from_ref, reason = "that it is asked for once is the caller's promise")]
    pub unsafe fn scratch(&self) -> &mut [f32] {
        // SAFETY: each thread has its own.
        unsafe { self.scratch.part(NUMBER.get() * self.len, self.len) }
    }

    /// Calls `work` for rows 0 to below `n`, each thread's at a time: the more, the less a product's copy of the weights
    /// counts. No row is two tasks'.
    pub fn for_each_rows(self, n: usize, work: impl Fn(Rows) + Sync) {
        let len = n.div_ceil(self.team.threads()).next_multiple_of(GRAIN);
        self.team.for_each(n.div_ceil(len), |task| {
            let start = task * len;
            work(Rows { start, len: len.min(n - start) });
        });
    }
}

/// Some rows of every tensor that has a row a token.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The first.
    pub start: usize,
    /// How many.
    pub len: usize,
}

impl Rows {
    /// These rows of a tensor whose rows have so many elements.
    pub fn read(self, data: &[f32], width: usize) -> &[f32] {
        &data[self.start * width..][..self.len * width]
    }

    /// The same, to be written.
    ///
    /// # Safety
    /// Nobody else has these rows of this tensor at the same time.
    #[expect(clippy::mut_from_ref, reason = "that rows are disjoint is the caller's promise")]
    pub unsafe fn of<'a>(self, data: &'a Disjoint<'_>, width: usize) -> &'a mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { data.part(self.start * width, self.len * width) }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_done_once() {
        for threads in [1, 2, 5] {
            let team = Team::new(threads).expect("threads");
            assert_eq!(team.threads(), threads);
            for n in [0, 1, 2, 7, 1000] {
                let done: Vec<_> = (0..n).map(|_| AtomicUsize::new(0)).collect();
                team.for_each(n, |task| {
                    assert!(NUMBER.get() < threads);
                    done[task].fetch_add(1, Ordering::Relaxed);
                });
                assert!(done.iter().all(|done| done.load(Ordering::Relaxed) == 1), "{n} tasks on {threads} threads");
            }
        }
    }

    #[test]
    fn work_within_work_is_done_where_it_is() {
        let team = Team::new(3).expect("threads");
        let done = AtomicUsize::new(0);
        team.for_each(4, |_| {
            team.for_each(5, |_| {
                done.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(done.into_inner(), 20);
    }

    #[test]
    fn threads_that_went_to_sleep_are_woken() {
        let team = Team::new(3).expect("threads");
        for _ in 0..3 {
            thread::sleep(std::time::Duration::from_millis(50));
            let numbers = Mutex::new(std::collections::BTreeSet::new());
            // Each waits for the others: it ends only if all three take part.
            let together = std::sync::Barrier::new(3);
            team.for_each(3, |_| {
                together.wait();
                numbers.lock().expect("no panic").insert(NUMBER.get());
            });
            assert_eq!(numbers.into_inner().expect("no panic").len(), 3);
        }
    }

    #[test]
    fn a_panic_comes_out_and_the_team_goes_on() {
        let team = Team::new(2).expect("threads");
        for guilty in 0..8 {
            let outcome = catch_unwind(AssertUnwindSafe(|| team.for_each(8, |task| assert_ne!(task, guilty))));
            assert!(outcome.is_err());
            let done = AtomicUsize::new(0);
            team.for_each(8, |_| {
                done.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(done.into_inner(), 8);
        }
    }
}
