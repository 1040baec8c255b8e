//! The cards ten times a second, and the state of their driver: one moment is one call, so that a test steps through
//! what takes hours.

use std::{
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use headroom_shared::{
    protocol::{Telemetry, gpu::Sample, state::DriverState},
    text,
};
use nvml_wrapper::{cuda_driver_version_major, cuda_driver_version_minor};

use crate::clock::Moment;

use super::{
    Observed,
    answers::{Answers, Trouble, refused},
    cards::{Cards, Place},
    clock::Times,
    handles::Handles,
    library::{self, Absent, Library},
    sample,
    scan::Scan,
    shared::{Attached, Shared, Target},
};

/// How often a driver that does not answer is tried again.
pub const RETRY: Duration = Duration::from_secs(2);
/// How often it is seen whether cards have come or gone.
pub const LOOK: Duration = Duration::from_secs(1);
/// A card that left the bus and is back stands in no list until NVML begins anew, which interrupts the other cards'
/// readings: so long after the loss it begins anew for the first time, …
pub const RENEW: Duration = Duration::from_secs(20);
/// … then after twice as long each time, and at last so seldom.
pub const RENEW_MAX: Duration = Duration::from_secs(640);

/// Reads moments.
#[derive(Debug)]
pub struct Reader {
    named: Option<PathBuf>,
    shared: Arc<Shared>,
    /// The library that is read by, and its cards' handles.
    handles: Option<Handles>,
    /// The library before this one: it has to be closed before another can be loaded in its place, and the other
    /// thread may be reading by it.
    closing: Weak<Library>,
    driver: DriverState,
    cards: Cards,
    /// How many NVML counted last; none before the first look.
    n_cards: Option<u32>,
    next_try: Duration,
    next_look: Duration,
    renewal: Option<Renewal>,
    times: Times,
    seq: u64,
}

#[derive(Clone, Copy, Debug)]
struct Renewal {
    at: Duration,
    wait: Duration,
}

impl Reader {
    /// Reads by a named library, or the system's, and lets the other thread share it.
    pub fn new(named: Option<PathBuf>, shared: Arc<Shared>) -> Self {
        Self {
            named,
            shared,
            handles: None,
            closing: Weak::new(),
            driver: DriverState::Starting,
            cards: Cards::default(),
            n_cards: None,
            next_try: Duration::ZERO,
            next_look: Duration::ZERO,
            renewal: None,
            times: Times::default(),
            seq: 0,
        }
    }

    /// What is to be told of this moment.
    pub fn read(&mut self, now: Moment) -> Vec<Observed> {
        let mut told = Vec::new();
        self.renew(now);
        if self.handles.is_none() && now.since_start >= self.next_try {
            self.load(now, &mut told);
        }
        let Some(mut handles) = self.handles.take() else { return told };
        let is_due = now.since_start >= self.next_look;
        if is_due {
            self.next_look = now.since_start + LOOK;
        }
        let read = self.look_and_sample(&mut handles, is_due, &mut told);
        self.handles = Some(handles);
        match read {
            Ok(gpus) => {
                self.plan_renewal(now);
                self.seq += 1;
                let telemetry = Telemetry { seq: self.seq, time_ms: self.times.time_ms(now), gpus };
                told.push(Observed::Telemetry(Arc::new(telemetry)));
            }
            Err(reason) => self.gone(reason, now, &mut told),
        }
        told
    }

    fn load(&mut self, now: Moment, told: &mut Vec<Observed>) {
        if self.closing.strong_count() > 0 {
            return;
        }
        match library::load(self.named.as_deref()) {
            Ok(library) => {
                self.tell_driver(ready(&library), told);
                self.handles = Some(Handles::new(Arc::new(library)));
                self.next_look = now.since_start;
            }
            Err(absent) => {
                self.next_try = now.since_start + RETRY;
                self.absent(absent, told);
            }
        }
    }

    /// What never answered is not there; what did is gone.
    fn absent(&mut self, absent: Absent, told: &mut Vec<Observed>) {
        let answered = matches!(self.driver, DriverState::Ready { .. } | DriverState::Gone { .. });
        let state = match (absent, answered) {
            (Absent::Library, false) => DriverState::NoLibrary,
            (Absent::Driver(reason), false) => DriverState::NoDriver { reason },
            (Absent::Library, true) => DriverState::Gone { reason: text::DRIVER_LIBRARY_GONE.to_string() },
            (Absent::Driver(reason), true) => DriverState::Gone { reason },
        };
        self.tell_driver(state, told);
        self.lose_all(told);
    }

    fn gone(&mut self, reason: String, now: Moment, told: &mut Vec<Observed>) {
        self.close();
        self.next_try = now.since_start + RETRY;
        self.tell_driver(DriverState::Gone { reason }, told);
        self.lose_all(told);
    }

    fn close(&mut self) {
        self.shared.set(None);
        self.n_cards = None;
        self.closing = self.handles.take().map_or_else(Weak::new, |handles| Arc::downgrade(handles.library()));
    }

    /// Begins anew with the library where a lost card may be found by that.
    fn renew(&mut self, now: Moment) {
        if self.handles.is_some()
            && let Some(renewal) = self.renewal.filter(|renewal| now.since_start >= renewal.at)
        {
            let wait = RENEW_MAX.min(2 * renewal.wait);
            self.renewal = Some(Renewal { at: now.since_start + wait, wait });
            self.close();
            self.next_try = now.since_start;
        }
    }

    fn plan_renewal(&mut self, now: Moment) {
        if !self.cards.is_one_lost() {
            self.renewal = None;
        } else if self.renewal.is_none() {
            self.renewal = Some(Renewal { at: now.since_start + RENEW, wait: RENEW });
        }
    }

    /// Reads the cards that answer; an error is the driver's.
    fn look_and_sample(
        &mut self,
        handles: &mut Handles,
        is_due: bool,
        told: &mut Vec<Observed>,
    ) -> Result<Vec<Sample>, String> {
        if is_due {
            self.look(handles, false, told)?;
        }
        let (samples, lost) = self.sample(handles)?;
        if lost.is_empty() {
            return Ok(samples);
        }
        // Where one card leaves the others may be numbered anew, and what was read may be of another card.
        self.look(handles, true, told)?;
        let (samples, lost) = self.sample(handles)?;
        if !lost.is_empty() {
            let uuids: Vec<_> = lost.into_iter().filter_map(|position| self.cards.lose(position)).collect();
            self.tell_lost(uuids, told);
            self.share(handles.library());
        }
        Ok(samples)
    }

    /// Sees whether cards have come or gone; an error is the driver's. Where nothing says so, only they are counted.
    fn look(&mut self, handles: &mut Handles, closely: bool, told: &mut Vec<Observed>) -> Result<(), String> {
        handles.clear();
        let library = handles.library();
        let n_cards = match library.nvml.device_count() {
            Ok(n_cards) => n_cards,
            Err(error) => match refused(&error) {
                Trouble::Driver(reason) => return Err(reason),
                // Those that are known are read as before.
                Trouble::Card => self.n_cards.unwrap_or(0),
            },
        };
        let as_before = self.n_cards == Some(n_cards) && !self.cards.is_one_lost() && !self.cards.is_one_split();
        if as_before && !closely {
            return Ok(());
        }
        let is_first = self.n_cards.replace(n_cards).is_none();
        let mut scan = Scan::new(library, &mut self.cards);
        scan.all(n_cards)?;
        let (events, changed) = scan.finish();
        if changed || is_first {
            told.push(Observed::Inventory(self.cards.inventory()));
            self.share(library);
        }
        told.extend(events);
        Ok(())
    }

    /// Samples, and the places of cards that do not answer any more.
    fn sample(&self, handles: &mut Handles) -> Result<(Vec<Sample>, Vec<usize>), String> {
        let mut samples = Vec::with_capacity(self.cards.places().len());
        let mut lost = Vec::new();
        for (position, place) in self.cards.places().iter().enumerate().filter(|(_, place)| place.gpu.present) {
            match sample_of(handles, position, place) {
                Ok(sample) => samples.push(sample),
                Err(Trouble::Card) => lost.push(position),
                Err(Trouble::Driver(reason)) => return Err(reason),
            }
        }
        Ok((samples, lost))
    }

    fn share(&self, library: &Arc<Library>) {
        let present = self.cards.places().iter().filter(|place| place.gpu.present);
        let targets = present.map(|place| Target {
            gpu: place.gpu.index,
            address: place.address,
            split: place.gpu.mig_enabled.get() == Some(&true),
        });
        self.shared.set(Some(Attached { library: Arc::clone(library), targets: targets.collect() }));
    }

    fn lose_all(&mut self, told: &mut Vec<Observed>) {
        let lost: Vec<_> = (0..self.cards.places().len()).filter_map(|position| self.cards.lose(position)).collect();
        self.tell_lost(lost, told);
    }

    fn tell_lost(&self, uuids: Vec<String>, told: &mut Vec<Observed>) {
        if !uuids.is_empty() {
            told.push(Observed::Inventory(self.cards.inventory()));
            told.extend(uuids.into_iter().map(Observed::CardLost));
        }
    }

    fn tell_driver(&mut self, driver: DriverState, told: &mut Vec<Observed>) {
        if self.driver != driver {
            self.driver = driver.clone();
            told.push(Observed::Driver(driver));
        }
    }
}

fn sample_of(handles: &mut Handles, position: usize, place: &Place) -> Result<Sample, Trouble> {
    let device = handles.device(position, place.address).map_err(|error| refused(&error))?;
    let mut answers = Answers::default();
    let sample = sample::read(device, place.gpu.index, &mut answers);
    answers.trouble().map_or(Ok(sample), Err)
}

fn ready(library: &Library) -> DriverState {
    let nvml = &library.nvml;
    let cuda = nvml.sys_cuda_driver_version().ok();
    DriverState::Ready {
        driver_version: nvml.sys_driver_version().unwrap_or_else(|_| "of an unknown version".to_owned()),
        cuda_version: cuda.and_then(|version| {
            let [major, minor] = [cuda_driver_version_major(version), cuda_driver_version_minor(version)];
            Some((u32::try_from(major).ok()?, u32::try_from(minor).ok()?))
        }),
        windows: library.windows,
    }
}
