//! A bounded number of seats, of which nobody takes more than a fair share: whoever comes when all are taken gets the
//! one that its holder has had for longest, of the address that holds most.
//!
//! To refuse whoever comes instead, as `MaxStartups` of sshd does, would let one client keep everybody out for as long
//! as it opens connections; to take nobody before one leaves, as a semaphore does, the same. nginx drops its oldest idle
//! connections likewise, and does not ask whose they are.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

/// Tells one holder to leave.
#[derive(Debug, Default)]
pub struct Leave {
    is_asked: AtomicBool,
    asked: Notify,
}

impl Leave {
    /// Asks for it, once and for all.
    pub fn ask(&self) {
        self.is_asked.store(true, Ordering::Release);
        self.asked.notify_one();
    }

    /// Whether it was asked for.
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Acquire)
    }

    /// Resolves when it is; one task may wait.
    pub async fn asked(&self) {
        while !self.is_asked() {
            self.asked.notified().await;
        }
    }
}

/// What one address holds.
#[derive(Debug, Default)]
struct Held {
    /// All its seats.
    n: usize,
    /// Those that may be taken from it, the oldest first.
    loose: BTreeMap<u64, Arc<Leave>>,
}

#[derive(Debug, Default)]
struct Seats {
    /// What the next seat is called: they are taken in this order.
    next: u64,
    /// Seats that are taken, those of holders who were told to leave not among them.
    n: usize,
    by_address: HashMap<IpAddr, Held>,
}

impl Seats {
    /// The oldest seat that may be taken, of the address that holds most. One more is counted for `newcomer`'s: an
    /// address that would hold most gives up its own, or gets none.
    fn oldest(&self, newcomer: Option<IpAddr>) -> Option<(IpAddr, u64)> {
        let own = newcomer.and_then(|address| self.by_address.get(&address)).map_or(0, |held| held.n);
        // As many addresses as seats at most: a thousand are walked in microseconds.
        self.by_address
            .iter()
            .filter_map(|(address, held)| {
                let n = held.n + usize::from(newcomer == Some(*address));
                Some((n, Reverse(*held.loose.first_key_value()?.0), *address))
            })
            .max()
            .filter(|(n, ..)| newcomer.is_none() || *n > own)
            .map(|(_, Reverse(seat), address)| (address, seat))
    }

    /// Takes a seat away; whether it still was there to be taken.
    fn remove(&mut self, address: IpAddr, is_there: impl FnOnce(&mut Held) -> bool) -> bool {
        let Some(held) = self.by_address.get_mut(&address) else { return false };
        if !is_there(held) {
            return false;
        }
        held.n -= 1;
        self.n -= 1;
        if held.n == 0 {
            self.by_address.remove(&address);
        }
        true
    }

    /// Tells a holder to leave; its seat is free at once.
    fn send_away(&mut self, (address, seat): (IpAddr, u64)) {
        self.remove(address, |held| held.loose.remove(&seat).inspect(|leave| leave.ask()).is_some());
    }
}

/// Seats for one purpose.
#[derive(Debug)]
pub struct Room {
    n_max: usize,
    /// For one address that is not this machine's own.
    per_address_max: usize,
    seats: Mutex<Seats>,
    emptied: Notify,
}

impl Room {
    /// An empty one, all of which one address may have while no other wants any.
    pub fn new(n_max: u32) -> Self {
        Self::shared(n_max, n_max)
    }

    /// One that no address may have more of, except this machine's own: a tunnel or a proxy on it is one address, and
    /// everybody who comes through.
    pub fn shared(n_max: u32, per_address_max: u32) -> Self {
        let [n_max, per_address_max] = [n_max, per_address_max].map(|n| n as usize);
        Self { n_max, per_address_max, seats: Mutex::default(), emptied: Notify::new() }
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat for a client of that address, as [`network`](crate::server::access::network) names it; `leave` is asked
    /// when somebody else gets it. `None` where nobody has one that may be taken for it.
    pub fn enter(self: &Arc<Self>, address: IpAddr, leave: &Arc<Leave>) -> Option<Seat> {
        let mut seats = self.seats();
        let here = seats.by_address.get(&address);
        if !address.is_loopback() && here.is_some_and(|held| held.n >= self.per_address_max) {
            let oldest = here.and_then(|held| held.loose.first_key_value().map(|(seat, _)| *seat))?;
            seats.send_away((address, oldest));
        } else if seats.n >= self.n_max {
            let oldest = seats.oldest(Some(address))?;
            seats.send_away(oldest);
        }
        let number = seats.next;
        seats.next += 1;
        seats.n += 1;
        let held = seats.by_address.entry(address).or_default();
        held.n += 1;
        held.loose.insert(number, Arc::clone(leave));
        drop(seats);
        Some(Seat { room: Arc::clone(self), address, number, is_kept: false })
    }

    /// Sends an eighth away though nobody wants their seats, at least one; whether there was any that may be taken.
    pub fn thin(&self) -> bool {
        let mut seats = self.seats();
        let n = seats.n / 8 + 1;
        (0..n).map_while(|_| seats.oldest(None).map(|oldest| seats.send_away(oldest))).count() > 0
    }

    /// Seats that are taken.
    pub fn n(&self) -> usize {
        self.seats().n
    }

    /// Resolves when none is.
    pub async fn emptied(&self) {
        loop {
            // What happens from here on is heard, also before it is waited for.
            let mut emptied = std::pin::pin!(self.emptied.notified());
            emptied.as_mut().enable();
            if self.n() == 0 {
                return;
            }
            emptied.await;
        }
    }
}

/// Frees itself when it is dropped.
#[derive(Debug)]
pub struct Seat {
    room: Arc<Room>,
    address: IpAddr,
    number: u64,
    is_kept: bool,
}

impl Seat {
    /// From now on nobody else gets it, if nobody was promised it yet.
    pub fn keep(&mut self) {
        let mut seats = self.room.seats();
        if let Some(held) = seats.by_address.get_mut(&self.address) {
            self.is_kept |= held.loose.remove(&self.number).is_some();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.room.seats();
        let Self { number, is_kept, .. } = *self;
        seats.remove(self.address, |held| held.loose.remove(&number).is_some() || is_kept);
        if seats.n == 0 {
            self.room.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
    const C: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 3));
    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    type Holder = (Arc<Leave>, Option<Seat>);

    fn enter(room: &Arc<Room>, address: IpAddr) -> Holder {
        let leave = Arc::default();
        let seat = room.enter(address, &leave);
        (leave, seat)
    }

    fn asked(holders: &[Holder]) -> Vec<bool> {
        holders.iter().map(|(leave, _)| leave.is_asked()).collect()
    }

    #[test]
    fn the_oldest_seat_of_who_has_most_is_taken() {
        let room = Arc::new(Room::new(4));
        let mut holders: Vec<Holder> = [B, A, A, A].map(|address| enter(&room, address)).into();
        // B's is older, and A has more.
        holders.push(enter(&room, C));
        assert_eq!(asked(&holders), [false, true, false, false, false]);
        // A has two, and B would: it gives up its own, which is older.
        holders.push(enter(&room, B));
        assert_eq!(asked(&holders), [true, true, false, false, false, false]);
        holders.push(enter(&room, B));
        assert_eq!(asked(&holders), [true, true, true, false, false, false, false]);
        assert!(holders.iter().all(|(_, seat)| seat.is_some()));
        assert_eq!(room.n(), 4);
        // Who was sent away has nothing to give back.
        drop(holders.drain(..3));
        assert_eq!(room.n(), 4);
        drop(holders);
        assert_eq!(room.n(), 0);
        assert!(room.seats().by_address.is_empty());
    }

    #[test]
    fn many_addresses_of_one_each_give_up_the_oldest() {
        let room = Arc::new(Room::new(100));
        let address = |i: u32| IpAddr::from(i.to_be_bytes());
        let holders: Vec<Holder> = (0..100).map(|i| enter(&room, address(i))).collect();
        let newcomer = enter(&room, HERE);
        assert!(newcomer.1.is_some() && !newcomer.0.is_asked());
        assert_eq!(holders.iter().filter(|(leave, _)| leave.is_asked()).count(), 1);
        assert!(holders[0].0.is_asked());
    }

    #[test]
    fn what_is_kept_is_taken_by_nobody() {
        let room = Arc::new(Room::new(2));
        let mut holders = vec![enter(&room, A), enter(&room, A)];
        for (_, seat) in &mut holders {
            seat.as_mut().expect("there is room").keep();
        }
        assert!(enter(&room, B).1.is_none());
        holders.pop();
        let loose = enter(&room, B);
        // A already has as many as B, and B's may not be taken for one more.
        assert!(enter(&room, A).1.is_none());
        assert!(enter(&room, B).1.is_some() && loose.0.is_asked());
        assert_eq!((asked(&holders), room.n()), (vec![false], 1));
    }

    #[test]
    fn one_address_has_no_more_than_its_share_and_this_machine_all() {
        let room = Arc::new(Room::shared(4, 2));
        let holders = [A, A, A].map(|address| enter(&room, address));
        assert_eq!((asked(&holders), room.n()), (vec![true, false, false], 2));
        drop(holders);
        let holders = [HERE; 5].map(|address| enter(&room, address));
        assert_eq!((asked(&holders), room.n()), (vec![true, false, false, false, false], 4));
    }

    #[test]
    fn it_is_thinned_out_down_to_those_that_are_kept() {
        let room = Arc::new(Room::new(20));
        let mut holders: Vec<Holder> = [A, A, B].iter().chain(&[A; 13]).map(|address| enter(&room, *address)).collect();
        holders[2].1.as_mut().expect("there is room").keep();
        // Two of sixteen and one, and then one at least.
        assert!(room.thin());
        assert_eq!((asked(&holders[..5]), room.n()), (vec![true, true, false, true, false], 13));
        let n = (0..100).take_while(|_| room.thin()).count();
        assert!((2..13).contains(&n), "{n}");
        assert_eq!((holders[2].0.is_asked(), room.n()), (false, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_the_last_to_go_hears_of_it() {
        let room = Arc::new(Room::new(8));
        room.emptied().await;
        let holders = [A, B].map(|address| enter(&room, address));
        let waits = tokio::spawn({
            let room = Arc::clone(&room);
            async move { room.emptied().await }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(holders);
        waits.await.expect("it ends");
    }
}
