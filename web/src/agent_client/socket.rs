//! The page's WebSocket to the agent. There is one at a time.

use std::cell::RefCell;

use wasm_bindgen::{JsCast, JsValue, closure::Closure};
use web_sys::{Event, MessageEvent, WebSocket};

/// An event of the socket.
#[derive(Clone, Debug, PartialEq)]
pub enum SocketEvent {
    /// The socket opened.
    Opened,
    /// A text message arrived.
    Message(String),
    /// The socket closed, or failed to open.
    Closed,
}

thread_local! {
    static SOCKET: RefCell<Option<WebSocket>> = const { RefCell::new(None) };
    /// Event listeners, created once and shared by all sockets, so that reconnecting leaks no memory.
    static LISTENERS: RefCell<Option<[JsValue; 3]>> = const { RefCell::new(None) };
}

/// Sets the handler for the events of all sockets. It stays for the lifetime of the page.
pub fn listen(hear: impl Fn(SocketEvent) + Clone + 'static) {
    let is_current = |event: &Event| {
        SOCKET
            .with_borrow(|socket| socket.as_ref().is_some_and(|socket| event.target().is_some_and(|at| at == **socket)))
    };
    let (opened, closed) = (hear.clone(), hear.clone());
    let on_open = Closure::<dyn FnMut(Event)>::new(move |event: Event| {
        if is_current(&event) {
            opened(SocketEvent::Opened);
        }
    });
    let on_message = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
        if let (true, Some(text)) = (is_current(&event), event.data().as_string()) {
            hear(SocketEvent::Message(text));
        }
    });
    let on_close = Closure::<dyn FnMut(Event)>::new(move |event: Event| {
        if is_current(&event) {
            SOCKET.set(None);
            closed(SocketEvent::Closed);
        }
    });
    LISTENERS.set(Some([on_open.into_js_value(), on_message.into_js_value(), on_close.into_js_value()]));
}

/// Opens a new socket and discards the previous one with its events. Returns `false` if the browser refuses.
pub fn open() -> bool {
    close();
    let address = super::beside("ws");
    // The scheme http becomes ws, and https becomes wss.
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

/// Sends a message. If the socket is broken, the message is lost and the socket's close event follows.
pub fn send(message: &str) {
    SOCKET.with_borrow(|socket| {
        if let Some(socket) = socket {
            drop(socket.send_with_str(message));
        }
    });
}
