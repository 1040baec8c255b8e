//! Printed lines of a run: stored in order, limited with a marker, and read together with the lines that an earlier
//! version stored.

use headroom_protocol::run::Evaluation;

use super::*;
use crate::store::printed::{self, Cursor, PendingLine, PrintedLine};

fn at(iter: u64) -> Iteration {
    Iteration { iter, loss: (iter != 7).then_some(iter as f64 / 3.0), time_ms: 1.5, ..Iteration::default() }
}

/// Returns all lines of a run, page by page.
fn lines(rig: &Rig, run: &str) -> Vec<PrintedLine> {
    let (mut lines, mut next) = (vec![], Some(Cursor::default()));
    while let Some(after) = next {
        let page = rig.archive.printed(run, after).expect("history");
        lines.extend(page.lines);
        next = page.next;
    }
    lines
}

fn iters(rig: &Rig, run: &str) -> Vec<u64> {
    let iter = |line: PrintedLine| match line.figures {
        Figures::Iteration(it) => it.iter,
        Figures::Evaluation(it) => it.iter,
        Figures::LeftOut(n) => panic!("{n} lines left out"),
    };
    lines(rig, run).into_iter().map(iter).collect()
}

#[test]
fn lines_are_kept_in_their_order_over_pages_and_deleted_with_their_run() {
    let mut rig = Rig::new();
    let (one, other): (Arc<str>, Arc<str>) = ("a1".into(), "b2".into());
    rig.begin("a1");
    let evaluation = Evaluation { iter: 7, train_loss: Some(2.5), val_loss: None };
    rig.queue.push_printed(START_MS, &one, Figures::Evaluation(evaluation));
    for iter in 7..30_000 {
        rig.queue.push_printed(START_MS + iter, &one, Figures::Iteration(at(iter)));
        if iter % 10_000 == 0 {
            rig.queue.push_printed(START_MS + iter, &other, Figures::Iteration(at(iter)));
            rig.turn_after(250);
        }
    }
    rig.turn_after(250);
    assert_eq!(iters(&rig, "a1"), [7].into_iter().chain(7..30_000).collect::<Vec<_>>());
    assert_eq!(iters(&rig, "b2"), [10_000, 20_000]);
    let kept = lines(&rig, "a1");
    assert_eq!(kept[0], PrintedLine { at_ms: START_MS, figures: Figures::Evaluation(evaluation) });
    assert_eq!(kept[1], PrintedLine { at_ms: START_MS + 7, figures: Figures::Iteration(at(7)) });
    assert_eq!(kept[29_993], PrintedLine { at_ms: START_MS + 29_999, figures: Figures::Iteration(at(29_999)) });
    rig.append(Some("a1"), status(DONE));
    rig.turn_after(250);
    rig.archive.delete_run("a1", rig.now_ms).expect("it has ended");
    assert_eq!((lines(&rig, "a1"), rig.count("printed")), (vec![], 2));
}

#[test]
fn lines_beyond_the_bound_are_counted_where_they_are_missing() {
    let mut rig = Rig::new();
    rig.begin("a1");
    rig.turn();
    let run: Arc<str> = "a1".into();
    let line = |figures| PendingLine { run: Arc::clone(&run), printed: PrintedLine { at_ms: START_MS, figures } };
    let mut connection = Connection::open(rig.path()).expect("the file");
    let mut insert = |lines: &[Figures]| {
        let transaction = connection.transaction().expect("it is free");
        let lines: Vec<_> = lines.iter().copied().map(line).collect();
        printed::insert(&transaction, &lines, 4).expect("it is written");
        transaction.commit().expect("it is written");
    };
    let it = |iter| Figures::Iteration(at(iter));
    insert(&[it(0), Figures::LeftOut(3), Figures::LeftOut(2), it(1)]);
    insert(&[it(2), it(3)]);
    insert(&[it(4), it(5)]);
    insert(&[it(6)]);
    let kept: Vec<_> = lines(&rig, "a1").into_iter().map(|line| line.figures).collect();
    assert_eq!(kept, [it(0), Figures::LeftOut(5), it(1), it(2), Figures::LeftOut(4)]);
}

#[test]
fn a_full_queue_counts_what_it_has_no_room_for() {
    let rig = Rig::new();
    let run: Arc<str> = "a1".into();
    for iter in 0..500_000 {
        rig.queue.push_printed(START_MS, &run, Figures::Iteration(at(iter)));
    }
    let waiting = rig.queue.take_printed(usize::MAX);
    let Some((PendingLine { printed: last, .. }, kept)) = waiting.split_last() else { panic!("nothing waits") };
    let Figures::LeftOut(n) = last.figures else { panic!("{last:?}") };
    assert_eq!(kept.len() as u64 + n, 500_000);
    assert!(kept.len() >= 400_000, "{}", kept.len());
    assert_eq!(rig.queue.n_unwritten(), n);
}

#[test]
fn a_run_of_an_earlier_version_goes_on_in_rows() {
    let mut rig = Rig::new();
    rig.begin("a1");
    for iter in 0..3 {
        rig.append(Some("a1"), EventKind::RunIteration(at(iter)));
    }
    rig.turn();
    assert_eq!(iters(&rig, "a1"), [0, 1, 2]);
    let run: Arc<str> = "a1".into();
    for iter in 3..9 {
        rig.queue.push_printed(rig.now_ms, &run, Figures::Iteration(at(iter)));
    }
    // Events about these lines are not counted a second time.
    rig.append(Some("a1"), EventKind::RunIteration(at(3)));
    rig.append(Some("a1"), EventKind::RunIteration(at(8)));
    rig.turn_after(250);
    assert_eq!(iters(&rig, "a1"), (0..9).collect::<Vec<_>>());
}
