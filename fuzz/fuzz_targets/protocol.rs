//! Any text as what a client says to the agent, and as what the agent says to a page: it is read or refused with a
//! reason, and what is read can be written and read again.
#![no_main]

use headroom_shared::protocol::{
    CLIENT_MESSAGE_BYTES_MAX, PROTOCOL_VERSION, RefusalCode, ServerMessage, client::read_client_message,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    match read_client_message(&text) {
        Ok(message) => {
            assert!(text.len() <= CLIENT_MESSAGE_BYTES_MAX);
            let written = serde_json::to_string(&message).expect("a message is written");
            assert_eq!(read_client_message(&written).as_ref(), Ok(&message), "{written}");
        }
        Err(refusal) => {
            assert!(matches!(refusal.code, RefusalCode::BadHello | RefusalCode::UnknownVersion), "{refusal:?}");
            assert!(refusal.supported == [PROTOCOL_VERSION] && !refusal.message.is_empty(), "{refusal:?}");
        }
    }
    if let Ok(message) = serde_json::from_str::<ServerMessage>(&text) {
        // Equal but for the last digit of a number: the reader here is the quick one.
        let once = serde_json::to_string(&message).expect("a message is written");
        let again: ServerMessage = serde_json::from_str(&once).expect("what was written is read");
        assert_eq!(std::mem::discriminant(&again), std::mem::discriminant(&message), "{once}");
    }
});
