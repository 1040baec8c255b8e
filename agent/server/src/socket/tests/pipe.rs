//! A socket without a network: the receiver takes messages at its own pace, and a limited number of them wait.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use axum::extract::ws::Message;
use futures_util::{Sink, Stream};

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    room: usize,
    closed: bool,
    waiting: Vec<Waker>,
}

#[derive(Clone)]
struct Half(Arc<Mutex<Queue>>);

impl Half {
    fn new(room: usize) -> Self {
        Self(Arc::new(Mutex::new(Queue { room, ..Queue::default() })))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll<T>(&self, context: &Context<'_>, take: impl FnOnce(&mut Queue) -> Option<T>) -> Poll<T> {
        let mut queue = self.queue();
        match take(&mut queue) {
            Some(value) => {
                queue.waiting.drain(..).for_each(Waker::wake);
                Poll::Ready(value)
            }
            None => {
                queue.waiting.push(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        queue.waiting.drain(..).for_each(Waker::wake);
    }
}

/// One end of a pipe; both ends are alike.
pub struct Pipe {
    incoming: Half,
    outgoing: Half,
}

/// Creates a pipe whose second end holds up to `room` unread messages.
pub fn pipe(room: usize) -> (Pipe, Pipe) {
    let (there, back) = (Half::new(room), Half::new(1000));
    (Pipe { incoming: back.clone(), outgoing: there.clone() }, Pipe { incoming: there, outgoing: back })
}

impl Stream for Pipe {
    type Item = Result<Message, ()>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.incoming.poll(context, |queue| match queue.messages.pop_front() {
            Some(message) => Some(Some(Ok(message))),
            None => queue.closed.then_some(None),
        })
    }
}

impl Sink<Message> for Pipe {
    type Error = ();

    fn poll_ready(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), ()>> {
        self.outgoing.poll(context, |queue| {
            if queue.closed { Some(Err(())) } else { (queue.messages.len() < queue.room).then_some(Ok(())) }
        })
    }

    fn start_send(self: Pin<&mut Self>, message: Message) -> Result<(), ()> {
        let mut queue = self.outgoing.queue();
        queue.messages.push_back(message);
        queue.waiting.drain(..).for_each(Waker::wake);
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
        self.outgoing.close();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.incoming.close();
        self.outgoing.close();
    }
}
