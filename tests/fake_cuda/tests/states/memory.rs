//! Memory: how much there is, and what happens where it is too little.

use headroom_fake_cuda::{Card, Scenario};
use headroom_kernels::cuda::Device;
use insta::assert_snapshot;

use crate::child::Child;

fn scenario() -> Scenario {
    let card = Card { total_bytes: 12 << 30, context_bytes: 300 << 20, others_bytes: 2 << 30, ..Card::default() };
    Scenario { cards: vec![card], ..Scenario::default() }
}

#[test]
fn what_is_free_counts_the_context_others_and_ourselves() {
    let said = Child::on("memory::what_is_free_counts_the_context_others_and_ourselves", &scenario()).run(|tell| {
        let device = Device::open(0).expect("a card");
        let free = || device.memory().expect("it says").free_bytes;
        let before = free();
        tell(format!("{} MiB", before >> 20));
        let taken = device.allocate::<f32>(1 << 28).expect("it is free");
        tell(format!("{} bytes less", before - free()));
        drop(taken);
        tell(format!("{} bytes less", before - free()));
    });
    assert_snapshot!(said.told, @r#"
    9940 MiB
    1073741824 bytes less
    0 bytes less
    "#);
}

#[test]
fn too_much_is_refused_with_what_is_free() {
    let said = Child::on("memory::too_much_is_refused_with_what_is_free", &scenario()).run(|tell| {
        let device = Device::open(0).expect("a card");
        tell(device.allocate::<u64>(5 << 28).expect_err("10 GiB of 9.7").to_string());
        tell(device.allocate::<u64>(1 << 62).expect_err("beyond u64").to_string());
        tell(format!("{} MiB are free still", device.memory().expect("it says").free_bytes >> 20));
    });
    assert_snapshot!(said.told, @r#"
    10.00 GiB are needed on the card and 9.71 GiB are free
    an allocation's number of elements is 4611686018427387904, which is beyond what a card can count
    9940 MiB are free still
    "#);
}

#[test]
fn memory_that_another_process_took_meanwhile_is_the_same_error() {
    let test = "memory::memory_that_another_process_took_meanwhile_is_the_same_error";
    let said = Child::on(test, &Scenario { no_memory_at: Some(2), ..scenario() }).run(|tell| {
        let device = Device::open(0).expect("a card");
        let first = device.allocate::<u8>(1 << 20).expect("the first");
        tell(device.allocate::<u8>(1 << 30).expect_err("the second").to_string());
        tell(format!("{:?}", device.allocate::<u8>(1 << 30).map(|third| third.slice().bytes())));
        drop(first);
    });
    assert_snapshot!(said.told, @r#"
    1.00 GiB are needed on the card and 9.71 GiB are free
    Ok(1073741824)
    "#);
}

#[test]
fn lengths_are_compared_before_anything_is_copied() {
    let said = Child::on("memory::lengths_are_compared_before_anything_is_copied", &scenario()).run(|tell| {
        let device = Device::open(0).expect("a card");
        let four = device.upload(&[1_u32, 2, 3, 4]).expect("it is free");
        let two = four.slice().part(1, 2).expect("they are there");
        tell(format!("{:?}", device.download(two)));
        tell(device.write(two, &[7; 3]).expect_err("three into two").to_string());
        tell(device.copy(four.slice(), two).expect_err("two into four").to_string());
        device.zero(two).expect("it can");
        tell(format!("{:?}", device.download(four.slice())));
        tell(format!("{:?}", device.download(four.slice().part(4, 0).expect("nothing"))));
    });
    assert_snapshot!(said.told, @r#"
    Ok([2, 3])
    write: u32 has 2 elements instead of 3
    copy: u32 has 4 elements instead of 2
    Ok([1, 0, 0, 4])
    Ok([])
    "#);
}
