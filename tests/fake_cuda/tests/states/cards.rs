//! Which cards there are, and which can be used.

use headroom_fake_cuda::{Card, Scenario};
use headroom_kernels::cuda::{Device, cards};
use insta::assert_snapshot;

use crate::child::Child;

fn turing_and_hopper() -> Scenario {
    let turing = Card {
        name: "NVIDIA GeForce RTX 2080 Ti".to_owned(),
        uuid: "GPU-01234567-89ab-cdef-0123-456789abcdef".to_owned(),
        capability: (7, 5),
        ..Card::default()
    };
    let hopper = Card { name: "NVIDIA H200".to_owned(), capability: (9, 0), multiprocessors: 132, ..Card::default() };
    Scenario { cards: vec![turing, hopper], ..Scenario::default() }
}

#[test]
fn cards_are_told_with_what_they_can() {
    let said = Child::on("cards::cards_are_told_with_what_they_can", &turing_and_hopper()).run(|tell| {
        for card in cards().expect("two") {
            tell(format!("{card:?}"));
        }
    });
    assert_snapshot!(said.told, @r#"
    Card { index: 0, name: "NVIDIA GeForce RTX 2080 Ti", uuid: "GPU-01234567-89ab-cdef-0123-456789abcdef", capability: Capability { major: 7, minor: 5 }, total_bytes: 12878086144, multiprocessors: 46, shared_bytes_max: 101376 }
    Card { index: 1, name: "NVIDIA H200", uuid: "GPU-00000000-0000-4000-8000-000000000000", capability: Capability { major: 9, minor: 0 }, total_bytes: 12878086144, multiprocessors: 132, shared_bytes_max: 101376 }
    "#);
}

#[test]
fn a_card_that_is_too_old_is_refused_by_its_name() {
    let said = Child::on("cards::a_card_that_is_too_old_is_refused_by_its_name", &turing_and_hopper()).run(|tell| {
        tell(Device::open(0).expect_err("too old").to_string());
        let device = Device::open(1).expect("new enough");
        tell(format!(
            "{}: the norm of 3 and 4 is {}",
            device.card().name,
            crate::faults::norm(&device).expect("it runs")
        ));
    });
    assert_snapshot!(said.told, @r#"
    NVIDIA GeForce RTX 2080 Ti is of compute capability 7.5; the kernels need 8.0 (Ampere) or newer
    NVIDIA H200: the norm of 3 and 4 is 5
    "#);
}

#[test]
fn a_card_that_is_not_there_is_told_from_those_there_are() {
    let test = "cards::a_card_that_is_not_there_is_told_from_those_there_are";
    let said = Child::on(test, &turing_and_hopper()).run(|tell| {
        tell(Device::open(2).expect_err("two cards").to_string());
        tell(Device::open(u32::MAX).expect_err("two cards").to_string());
    });
    assert_snapshot!(said.told, @r#"
    there is no card 2: the driver shows 2, counted from 0
    there is no card 4294967295: the driver shows 2, counted from 0
    "#);
}
