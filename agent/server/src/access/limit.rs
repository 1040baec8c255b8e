//! Rate limits: requests per token, and failed attempts per address.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use tokio::time::Instant;

/// The window over which failures are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// The maximum number of failures per address and window: enough for typing errors, or a page that retries with a
/// revoked token.
const FAILURES_PER_ADDRESS_MAX: u32 = 20;
/// The maximum number of failures of all addresses together, which bounds distributed guessing.
const FAILURES_MAX: u32 = 400;
/// The maximum number of addresses stored. More addresses cannot fail before [`FAILURES_MAX`] is reached.
const ADDRESSES_MAX: usize = FAILURES_MAX as usize;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    level: f64,
    at: Instant,
}

impl Bucket {
    /// Creates a full bucket.
    pub fn full(burst: f64, now: Instant) -> Self {
        Self { level: burst, at: now }
    }

    /// Takes one unit, if available, and returns whether it did.
    pub fn take(&mut self, per_second: f64, burst: f64, now: Instant) -> bool {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.level = seconds.mul_add(per_second, self.level).min(burst);
        self.at = now;
        let taken = self.level >= 1.0;
        if taken {
            self.level -= 1.0;
        }
        taken
    }
}

/// The failures within a window.
#[derive(Debug, Default)]
pub struct Failures {
    since: Option<Instant>,
    n: u32,
    by_address: HashMap<IpAddr, u32>,
}

impl Failures {
    /// Counts a failure, and returns whether the limits still permit it.
    pub fn count(&mut self, from: IpAddr, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            *self = Self { since: Some(now), ..Self::default() };
        }
        let from = network(from);
        if self.n >= FAILURES_MAX || (self.by_address.len() >= ADDRESSES_MAX && !self.by_address.contains_key(&from)) {
            return false;
        }
        let n = self.by_address.entry(from).or_insert(0);
        if *n >= FAILURES_PER_ADDRESS_MAX {
            return false;
        }
        *n += 1;
        self.n += 1;
        true
    }
}

/// Returns the network that is rate-limited as one address. All addresses of an IPv6 /64 network count as one, as do
/// all loopback addresses.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        here if here.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_lets_a_burst_through_and_then_its_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::full(3.0, start);
        let mut taken = |after_ms| bucket.take(2.0, 3.0, start + Duration::from_millis(after_ms));
        assert_eq!(
            [0, 0, 0, 0, 499, 500, 501, 60_000, 60_000].map(&mut taken),
            [true, true, true, false, false, true, false, true, true]
        );
    }

    #[test]
    fn one_address_fails_without_harm_to_another() {
        let start = Instant::now();
        let mut failures = Failures::default();
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        for _ in 0..FAILURES_PER_ADDRESS_MAX {
            assert!(failures.count(address("2001:db8::1"), start));
        }
        assert!(!failures.count(address("2001:db8::ffff"), start), "it is of the same network");
        assert!(failures.count(address("2001:db8:0:1::1"), start));
        assert!(failures.count(address("192.0.2.1"), start));
        assert!(failures.count(address("2001:db8::1"), start + WINDOW), "a minute later it may fail again");
    }

    #[test]
    fn several_addresses_are_one() {
        let network = |text: &str| network(text.parse().expect("an address")).to_string();
        for (address, one) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("127.0.0.1", "127.0.0.1"),
            ("127.1.2.3", "127.0.0.1"),
            ("::1", "127.0.0.1"),
            ("::ffff:127.0.0.9", "127.0.0.1"),
        ] {
            assert_eq!(network(address), one, "{address}");
        }
    }

    #[test]
    fn all_together_fail_so_often_and_no_more() {
        let start = Instant::now();
        let mut failures = Failures::default();
        let counted = (0..10_000u32).filter(|i| failures.count(IpAddr::V4((*i).into()), start)).count();
        assert_eq!(counted, FAILURES_MAX as usize);
        assert!(failures.by_address.len() <= ADDRESSES_MAX);
    }
}
