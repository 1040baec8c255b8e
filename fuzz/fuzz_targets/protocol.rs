//! Fuzzes the protocol: any text, as a message from a client or from the agent, is parsed or rejected with a reason. A
//! parsed message survives serialization and parsing.
#![no_main]

use headroom_protocol::{
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
            assert!(refusal.supported == [PROTOCOL_VERSION] && !refusal.message.en.is_empty(), "{refusal:?}");
        }
    }
    if let Ok(message) = serde_json::from_str::<ServerMessage>(&text) {
        // Numbers may differ in the last digit, because the fast float parser is used here.
        let once = serde_json::to_string(&message).expect("a message is written");
        let again: ServerMessage = serde_json::from_str(&once).expect("written data can be read back");
        assert_eq!(std::mem::discriminant(&again), std::mem::discriminant(&message), "{once}");
    }
});
