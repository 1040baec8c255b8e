//! Fuzzes links: any text is read, and the part that is understood survives encoding and decoding.
#![no_main]

use headroom_planner::link::{Link, MAX_LINK_BYTES, decode, encode, split_compared, with_compared};
use libfuzzer_sys::fuzz_target;

fn written(link: &Link) -> String {
    encode(&link.settings(), &link.options)
}

fuzz_target!(|data: &[u8]| {
    let fragment = String::from_utf8_lossy(data);
    let link = decode(&fragment);
    let once = written(&link);
    let again = decode(&once);
    if once.len() > MAX_LINK_BYTES {
        assert!(!again.unknown.is_empty(), "an unread link is named");
        return;
    }
    assert_eq!(again.options, link.options, "{once}");
    assert!(again.unknown.is_empty() && again.later_version.is_none(), "{once}");
    assert_eq!(written(&again), once);
    assert_eq!(decode(&written(&again)), again);
    // Any text is a second run beside it, and changes nothing about the first.
    let both = with_compared(once.clone(), &fragment);
    let (run, other) = split_compared(&both);
    assert_eq!((run, other.as_deref().unwrap_or(&once)), (&*once, &*fragment));
    assert!(both.len() > MAX_LINK_BYTES || decode(&both) == again, "{both}");
});
