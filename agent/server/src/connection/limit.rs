//! A bounded number of seats with eviction. If all seats are taken, a newcomer gets the oldest seat of the address that
//! holds the most.
//!
//! Refusing newcomers instead, like `MaxStartups` of sshd, would let one client lock out all others while it opens
//! connections. Accepting no connection until one closes, like a semaphore, has the same effect. nginx also drops its
//! oldest idle connections, but regardless of their address.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
struct Seats {
    /// The number of the next seat; seats are numbered in order.
    next: u64,
    /// The number of occupied seats, without those of evicted holders.
    n: usize,
    /// The seats of each address that can be evicted, oldest first. No address is without any.
    evictable: HashMap<IpAddr, BTreeMap<u64, CancellationToken>>,
}

impl Seats {
    /// Evicts a holder and frees its seat at once. Returns whether any seat was evictable.
    fn evict(&mut self) -> bool {
        // There are at most as many addresses as seats: scanning a thousand takes microseconds.
        let oldest = |(address, seats): (&IpAddr, &BTreeMap<u64, _>)| {
            Some((seats.len(), Reverse(*seats.first_key_value()?.0), *address))
        };
        let Some((_, Reverse(number), address)) = self.evictable.iter().filter_map(oldest).max() else { return false };
        let evicted = self.remove(address, number);
        self.n -= usize::from(evicted.is_some());
        evicted.inspect(CancellationToken::cancel).is_some()
    }

    /// Makes a seat not evictable, and returns its token unless it was so already.
    fn remove(&mut self, address: IpAddr, number: u64) -> Option<CancellationToken> {
        let seats = self.evictable.get_mut(&address)?;
        let token = seats.remove(&number);
        if seats.is_empty() {
            self.evictable.remove(&address);
        }
        token
    }
}

/// A set of seats for one purpose.
#[derive(Debug)]
pub struct ConnectionLimit {
    n_max: usize,
    seats: Mutex<Seats>,
}

impl ConnectionLimit {
    /// Creates a set of `n_max` free seats.
    pub fn new(n_max: u32) -> Self {
        Self { n_max: n_max as usize, seats: Mutex::default() }
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat for an address normalised by [`network`](crate::access::network). `evicted` is cancelled
    /// when the seat is. Returns `None` if no seat is free or evictable.
    pub fn enter(self: &Arc<Self>, address: IpAddr, evicted: &CancellationToken) -> Option<ConnectionPermit> {
        let mut seats = self.seats();
        if seats.n >= self.n_max && !seats.evict() {
            return None;
        }
        let number = seats.next;
        seats.next += 1;
        seats.n += 1;
        seats.evictable.entry(address).or_default().insert(number, evicted.clone());
        drop(seats);
        Some(ConnectionPermit { limit: Arc::clone(self), address, number, is_kept: false })
    }

    /// Evicts an eighth of the seats, at least one, without a newcomer. Returns whether any seat was evictable.
    pub fn thin(&self) -> bool {
        let mut seats = self.seats();
        (0..=seats.n / 8).take_while(|_| seats.evict()).count() > 0
    }

    /// Returns the number of occupied seats.
    pub fn n(&self) -> usize {
        self.seats().n
    }
}

/// An occupied seat, which is freed on drop.
#[derive(Debug)]
pub struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    address: IpAddr,
    number: u64,
    is_kept: bool,
}

impl ConnectionPermit {
    /// Protects the seat from eviction, unless it was evicted already.
    pub fn keep(&mut self) {
        self.is_kept |= self.limit.seats().remove(self.address, self.number).is_some();
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut seats = self.limit.seats();
        // An evicted holder's seat was freed at once.
        if seats.remove(self.address, self.number).is_some() || self.is_kept {
            seats.n -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
    const C: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 3));

    type Holder = (CancellationToken, Option<ConnectionPermit>);

    fn enter(limit: &Arc<ConnectionLimit>, address: IpAddr) -> Holder {
        let evicted = CancellationToken::new();
        let seat = limit.enter(address, &evicted);
        (evicted, seat)
    }

    fn evicted(holders: &[Holder]) -> Vec<bool> {
        holders.iter().map(|(evicted, _)| evicted.is_cancelled()).collect()
    }

    #[test]
    fn oldest_permit_of_busiest_address_is_evicted() {
        let limit = Arc::new(ConnectionLimit::new(4));
        let mut holders: Vec<Holder> = [B, A, A, A].map(|address| enter(&limit, address)).into();
        // B's is older, but A has more.
        holders.push(enter(&limit, C));
        assert_eq!(evicted(&holders), [false, true, false, false, false]);
        // A still has the most.
        holders.push(enter(&limit, B));
        assert_eq!(evicted(&holders), [false, true, true, false, false, false]);
        holders.push(enter(&limit, B));
        assert_eq!(evicted(&holders), [true, true, true, false, false, false, false]);
        assert!(holders.iter().all(|(_, seat)| seat.is_some()));
        assert_eq!(limit.n(), 4);
        // Dropping evicted seats frees nothing.
        drop(holders.drain(..3));
        assert_eq!(limit.n(), 4);
        drop(holders);
        assert_eq!(limit.n(), 0);
        assert!(limit.seats().evictable.is_empty());
    }

    #[test]
    fn many_addresses_of_one_each_give_up_the_oldest() {
        let limit = Arc::new(ConnectionLimit::new(100));
        let address = |i: u32| IpAddr::from(i.to_be_bytes());
        let holders: Vec<Holder> = (0..100).map(|i| enter(&limit, address(i))).collect();
        let newcomer = enter(&limit, A);
        assert!(newcomer.1.is_some() && !newcomer.0.is_cancelled());
        assert_eq!(evicted(&holders).iter().filter(|evicted| **evicted).count(), 1);
        assert!(holders[0].0.is_cancelled());
    }

    #[test]
    fn kept_permit_is_not_evicted() {
        let limit = Arc::new(ConnectionLimit::new(2));
        let mut holders = vec![enter(&limit, A), enter(&limit, A)];
        for (_, seat) in &mut holders {
            seat.as_mut().expect("there is room").keep();
        }
        assert!(enter(&limit, B).1.is_none());
        holders.pop();
        let loose = enter(&limit, B);
        assert!(enter(&limit, A).1.is_some() && loose.0.is_cancelled());
        assert_eq!((evicted(&holders), limit.n()), (vec![false], 1));
    }

    #[test]
    fn it_is_thinned_out_down_to_those_that_are_kept() {
        let limit = Arc::new(ConnectionLimit::new(20));
        let mut holders: Vec<Holder> =
            [A, A, B].iter().chain(&[A; 13]).map(|address| enter(&limit, *address)).collect();
        holders[2].1.as_mut().expect("there is room").keep();
        // Two of sixteen and one, and then at least one.
        assert!(limit.thin());
        assert_eq!((evicted(&holders[..5]), limit.n()), (vec![true, true, false, true, false], 13));
        let n = (0..100).take_while(|_| limit.thin()).count();
        assert!((2..13).contains(&n), "{n}");
        assert_eq!((holders[2].0.is_cancelled(), limit.n()), (false, 1));
    }
}
