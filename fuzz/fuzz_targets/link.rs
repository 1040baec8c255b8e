//! Any text as a link: it is read, and what was understood of it survives being written and read again.
#![no_main]

use headroom_shared::{
    link::{Link, MAX_LINK_BYTES, decode, encode},
    nanogpt::read,
};
use libfuzzer_sys::fuzz_target;

fn written(link: &Link) -> String {
    encode(&read(&[link.source()]), &link.options)
}

fuzz_target!(|data: &[u8]| {
    let fragment = String::from_utf8_lossy(data);
    let link = decode(&fragment);
    let once = written(&link);
    let again = decode(&once);
    if once.len() > MAX_LINK_BYTES {
        assert!(!again.unknown.is_empty(), "a link that is not read is named");
        return;
    }
    assert_eq!(again.options, link.options, "{once}");
    assert!(again.unknown.is_empty() && again.later_version.is_none(), "{once}");
    assert_eq!(written(&again), once);
    assert_eq!(decode(&written(&again)), again);
});
