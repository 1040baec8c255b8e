//! The one socket to the agent.

use std::cell::RefCell;

use wasm_bindgen::{JsCast, JsValue, closure::Closure};
use web_sys::{Event, MessageEvent, WebSocket};

/// What a socket tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// It is open.
    Opened,
    /// A message came.
    Message(String),
    /// It closed, or never opened.
    Closed,
}

thread_local! {
    static SOCKET: RefCell<Option<WebSocket>> = const { RefCell::new(None) };
    /// Made once and given to every socket, so that a day of reconnecting leaves nothing behind.
    static LISTENERS: RefCell<Option<[JsValue; 3]>> = const { RefCell::new(None) };
}

/// Says who hears what sockets tell: one, for as long as the page lives.
pub fn listen(hear: impl Fn(Told) + Clone + 'static) {
    let is_current = |event: &Event| {
        SOCKET
            .with_borrow(|socket| socket.as_ref().is_some_and(|socket| event.target().is_some_and(|at| at == **socket)))
    };
    let (opened, closed) = (hear.clone(), hear.clone());
    let on_open = Closure::<dyn FnMut(Event)>::new(move |event: Event| {
        if is_current(&event) {
            opened(Told::Opened);
        }
    });
    let on_message = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
        if let (true, Some(text)) = (is_current(&event), event.data().as_string()) {
            hear(Told::Message(text));
        }
    });
    let on_close = Closure::<dyn FnMut(Event)>::new(move |event: Event| {
        if is_current(&event) {
            SOCKET.set(None);
            closed(Told::Closed);
        }
    });
    LISTENERS.set(Some([on_open.into_js_value(), on_message.into_js_value(), on_close.into_js_value()]));
}

/// Opens a socket in the place of the one before, of which nothing is heard any more; false where the browser refuses.
pub fn open() -> bool {
    close();
    let address = super::beside("ws");
    // http becomes ws, and https wss.
    let Some(socket) = address.strip_prefix("http").and_then(|rest| WebSocket::new(&format!("ws{rest}")).ok()) else {
        return false;
    };
    LISTENERS.with_borrow(|listeners| {
        let Some([on_open, on_message, on_close]) = listeners else { return };
        socket.set_onopen(Some(on_open.unchecked_ref()));
        socket.set_onmessage(Some(on_message.unchecked_ref()));
        socket.set_onclose(Some(on_close.unchecked_ref()));
    });
    SOCKET.set(Some(socket));
    true
}

/// Closes the socket, if there is one.
pub fn close() {
    if let Some(socket) = SOCKET.take() {
        socket.set_onopen(None);
        socket.set_onmessage(None);
        socket.set_onclose(None);
        drop(socket.close());
    }
}

/// Sends a message; one that cannot be sent is lost with its socket, whose close is heard.
pub fn send(message: &str) {
    SOCKET.with_borrow(|socket| {
        if let Some(socket) = socket {
            drop(socket.send_with_str(message));
        }
    });
}
