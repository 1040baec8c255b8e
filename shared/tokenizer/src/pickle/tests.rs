//! Tests of pickles: calls, numbers, and errors.

use super::*;

fn read(bytes: &[u8]) -> Result<Pickle, PickleError> {
    Pickle::read(bytes, &["collections OrderedDict"])
}

#[test]
fn call_is_a_value_and_runs_nothing() {
    // os.system('true') in a dict.
    let pickle = read(b"\x80\x02}X\x01\x00\x00\x00acos\nsystem\nX\x04\x00\x00\x00true\x85Rs.").expect("read");
    let Some(Value::Call(call)) = pickle.get(pickle.root(), "a") else { panic!("a call") };
    assert_eq!(pickle.called(call), Some("os system"));
    assert!(pickle.items(pickle.value(call.args)).eq([&Value::Text("true".to_owned())]));
    assert!(!pickle.is_dict(&Value::Call(call.clone())));
}

#[test]
fn only_listed_classes_are_dicts() {
    for (class, is_dict) in [("OrderedDict", true), ("Counter", false)] {
        let bytes = [b"ccollections\n", class.as_bytes(), b"\n)RK\x01K\x02s."].concat();
        let pickle = read(&bytes).expect("read");
        assert_eq!(pickle.is_dict(pickle.root()), is_dict, "{class}");
        assert_eq!(pickle.get_int(pickle.root(), 1), is_dict.then_some(&Value::Int(2)), "{class}");
    }
}

#[test]
fn numbers_have_64_bits() {
    for (bytes, expected) in [
        (&b"\x8a\x00."[..], Value::Int(0)),
        (b"\x8a\x01\xff.", Value::Int(-1)),
        (b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f.", Value::Int(i64::MAX)),
        (b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\x00.", Value::Int(i64::MAX)),
        (b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00.", Value::Opaque),
        (b"I-7\n.", Value::Int(-7)),
        (b"L99999999999999999999L\n.", Value::Opaque),
        (b"G\x3f\xf8\0\0\0\0\0\0.", Value::Float(1.5)),
    ] {
        assert_eq!(read(bytes).expect("read").root(), &expected, "{bytes:?}");
    }
}

#[test]
fn broken_pickles_are_errors() {
    for (bytes, at, why) in [
        (&b""[..], 0, Cause::Truncated),
        (b"\x80\x02", 2, Cause::Truncated),
        (b"\x80\x07", 0, Cause::Protocol(7)),
        (b".", 0, Cause::Stack),
        (b"X\xff\xff\xff\xffa.", 0, Cause::Truncated),
        (b"]}s.", 2, Cause::Stack),
        (b"}(K\x01u.", 4, Cause::NoValue),
        (b"h\x07.", 0, Cause::NoMemo(7)),
        (b"Nr\xff\xff\xff\xff.", 1, Cause::MemoTooLarge(0xffff_ffff)),
        (b"gx\n.", 0, Cause::Number),
        (b"(t", 2, Cause::Truncated),
        (b"e.", 0, Cause::Stack),
        (b"N(0.", 2, Cause::Stack),
        (b"\xf0", 0, Cause::Opcode(0xf0)),
    ] {
        assert_eq!(read(bytes).err(), Some(PickleError { at, why }), "{bytes:?}");
    }
}
