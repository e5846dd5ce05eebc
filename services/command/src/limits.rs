//! How much of whom is admitted: pure rules over times and numbers.
//!
//! A bucket is the generic cell rate algorithm (ITU-T I.371, the virtual scheduling form): it holds one instant, up to which
//! what was admitted has been paid for at the sustained rate.

use std::time::Duration;

/// What a limit is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One account.
    Account,
    /// One device of an account.
    Device,
    /// One network address, an IPv6 one by its first 64 bits.
    Address,
}

impl Kind {
    /// All of them, in the order in which they are asked.
    pub const ALL: [Self; 3] = [Self::Account, Self::Device, Self::Address];
}

/// A sustained rate, and how much may come at once after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Commands per second; 0 for no limit.
    pub per_s: u32,
    /// Commands at once.
    pub burst: u32,
}

impl Rate {
    /// Microseconds that one command pays for.
    fn price(self) -> u64 {
        1_000_000 / u64::from(self.per_s.max(1))
    }

    /// Microseconds that a full bucket holds.
    fn depth(self) -> u64 {
        self.price() * u64::from(self.burst.max(1))
    }

    /// A part of the rate, at least one per second; the burst shrinks with it.
    #[must_use]
    pub fn tightened(self, divisor: u32) -> Self {
        let part = |whole: u32| (whole / divisor.max(1)).max(1);
        Self { per_s: part(self.per_s), burst: part(self.burst) }
    }
}

/// One key's bucket. Times are microseconds since any fixed instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bucket {
    paid_until: u64,
}

impl Bucket {
    /// Admits `weight` commands at `now`, or says how long to wait. More than the burst at once waits for an empty bucket and is
    /// then admitted, so that nothing is refused for ever.
    ///
    /// # Errors
    /// The time until the same would be admitted.
    pub fn take(&mut self, rate: Rate, weight: u32, now: u64) -> Result<(), Duration> {
        if rate.per_s == 0 {
            return Ok(());
        }
        let from = self.paid_until.max(now);
        let until = from + rate.price() * u64::from(weight);
        let most = rate.depth().max(rate.price() * u64::from(weight));
        match until.checked_sub(now + most) {
            None | Some(0) => {
                self.paid_until = until;
                Ok(())
            }
            Some(wait) => Err(Duration::from_micros(wait)),
        }
    }

    /// Charges what other processes admitted. No more than one full bucket beyond a full one is remembered, so that a key
    /// recovers in bounded time.
    pub fn charge(&mut self, rate: Rate, weight: u32, now: u64) {
        let until = self.paid_until.max(now) + rate.price() * u64::from(weight);
        self.paid_until = until.min(now + 2 * rate.depth());
    }

    /// How full it is, in thousandths.
    #[must_use]
    pub fn fill(&self, rate: Rate, now: u64) -> u64 {
        self.paid_until.saturating_sub(now) * 1_000 / rate.depth().max(1)
    }

    /// Whether it is as good as new.
    #[must_use]
    pub fn is_idle(&self, now: u64) -> bool {
        self.paid_until <= now
    }
}

/// What looks unlike a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signal {
    /// Likes are taken back and given again all the time.
    Switches,
    /// Many devices at once.
    Devices,
    /// More different videos than anybody watches.
    Videos,
}

/// Bounds of what an account does within a window; above one of them its rate is tightened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Length of the window in microseconds.
    pub window: u64,
    /// Unlikes within it.
    pub switches: u32,
    /// Devices within it.
    pub devices: u32,
    /// Different videos within it, counted roughly.
    pub videos: u32,
}

/// Places of the rough count of videos.
const PLACES: usize = 32;
const BITS: u32 = 32 * u64::BITS;
const _: () = assert!(PLACES * 64 == 2_048 && BITS == 2_048, "as many bits as places");
/// Devices that are told apart; one more is enough to know.
const DEVICES: usize = 16;

/// What an account did within the present window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Behaviour {
    began_at: u64,
    switches: u32,
    devices: [u64; DEVICES],
    /// Linear counting (Whang and others, 1990) over 2,048 places.
    videos: [u64; PLACES],
    signalled: [bool; 3],
}

/// One command, as far as behaviour is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Act {
    /// It takes a like back.
    pub unlikes: bool,
    /// Hash of the device, if one was named; never 0.
    pub device: Option<u64>,
    /// Hash of the video.
    pub video: u64,
}

impl Behaviour {
    /// Notes a command; a signal that is new within the window is told once.
    pub fn note(&mut self, act: Act, bounds: &Bounds, now: u64) -> Option<Signal> {
        if now >= self.began_at + bounds.window {
            *self = Self { began_at: now, ..Self::default() };
        }
        self.switches += u32::from(act.unlikes);
        if let Some(device) = act.device
            && !self.devices.contains(&device)
            && let Some(free) = self.devices.iter_mut().find(|place| **place == 0)
        {
            *free = device;
        }
        let place = usize::try_from(act.video % (PLACES as u64 * 64)).unwrap_or(0);
        self.videos[place / 64] |= 1 << (place % 64);
        let signals = [Signal::Switches, Signal::Devices, Signal::Videos];
        let over = self.over(bounds);
        let new = (0..signals.len()).find(|place| over[*place] && !self.signalled[*place])?;
        self.signalled[new] = true;
        Some(signals[new])
    }

    /// Whether the account is above a bound in its present window.
    #[must_use]
    pub fn is_tight(&self, bounds: &Bounds, now: u64) -> bool {
        now < self.began_at + bounds.window && self.over(bounds).contains(&true)
    }

    /// Whether the window is over.
    #[must_use]
    pub fn is_past(&self, bounds: &Bounds, now: u64) -> bool {
        now >= self.began_at + bounds.window
    }

    fn over(&self, bounds: &Bounds) -> [bool; 3] {
        let devices = self.devices.iter().filter(|place| **place != 0).count();
        let devices = u32::try_from(devices).unwrap_or(u32::MAX);
        [self.switches > bounds.switches, devices > bounds.devices, self.distinct() > bounds.videos]
    }

    /// About how many different videos; right to a few per cent up to a thousand.
    fn distinct(&self) -> u32 {
        let all = BITS;
        let set: u32 = self.videos.iter().map(|word| word.count_ones()).sum();
        if set >= all {
            return u32::MAX;
        }
        let all = f64::from(all);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let estimate = (all * (all / (all - f64::from(set))).ln()).round() as u32;
        estimate
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RATE: Rate = Rate { per_s: 10, burst: 5 };
    const BOUNDS: Bounds = Bounds { window: 60_000_000, switches: 10, devices: 3, videos: 300 };

    #[test]
    fn a_burst_passes_and_the_rest_waits_for_its_turn() {
        let mut bucket = Bucket::default();
        for _ in 0..5 {
            assert_eq!(bucket.take(RATE, 1, 1_000), Ok(()));
        }
        let wait = bucket.take(RATE, 1, 1_000).expect_err("the sixth");
        assert_eq!(wait, Duration::from_millis(100));
        assert_eq!(bucket.take(RATE, 1, 101_000), Ok(()), "the time that was told is enough");
        assert_eq!(Bucket::default().take(RATE, 100, 1_000), Ok(()), "more than a burst, from an empty bucket");
        assert_eq!(bucket.take(Rate { per_s: 0, burst: 0 }, 1_000_000, 0), Ok(()), "no limit");
        assert_eq!(RATE.tightened(4), Rate { per_s: 2, burst: 1 });
    }

    #[test]
    fn what_others_admitted_is_charged_and_forgotten_in_bounded_time() {
        let mut bucket = Bucket::default();
        bucket.charge(RATE, 1_000_000, 0);
        assert!(bucket.take(RATE, 1, 500_000).is_err());
        assert!(bucket.take(RATE, 1, 1_000_000).is_ok(), "two full buckets later at the latest");
    }

    #[test]
    fn a_signal_is_told_once_a_window_and_tightens_until_its_end() {
        let mut behaviour = Behaviour::default();
        let act = |number: u64| Act { unlikes: true, device: Some(number % 2 + 1), video: number % 7 };
        let told: Vec<Signal> = (0..50).filter_map(|number| behaviour.note(act(number), &BOUNDS, 1)).collect();
        assert_eq!(told, [Signal::Switches]);
        assert!(behaviour.is_tight(&BOUNDS, 2) && !behaviour.is_tight(&BOUNDS, 60_000_001));
        let mut many = Behaviour::default();
        let act = |number: u64| Act { unlikes: false, device: Some(number + 1), video: 3 };
        let told: Vec<Signal> = (0..50).filter_map(|number| many.note(act(number), &BOUNDS, 1)).collect();
        assert_eq!(told, [Signal::Devices]);
    }

    proptest! {
        #[test]
        fn never_more_than_burst_and_rate_over_any_interval(
            steps in prop::collection::vec((0_u64..300_000, 1_u32..4), 1..200),
        ) {
            let (mut bucket, mut now) = (Bucket::default(), 0);
            let mut admitted: Vec<(u64, u32)> = Vec::new();
            for (pause, weight) in steps {
                now += pause;
                if bucket.take(RATE, weight, now).is_ok() {
                    admitted.push((now, weight));
                }
            }
            for (first, (begin, _)) in admitted.iter().enumerate() {
                let mut sum = 0;
                for (at, weight) in &admitted[first..] {
                    sum += u64::from(*weight);
                    let allowed = u64::from(RATE.burst) + (at - begin) * u64::from(RATE.per_s) / 1_000_000;
                    prop_assert!(sum <= allowed, "{sum} within {} us", at - begin);
                }
            }
        }

        #[test]
        fn waiting_as_told_is_enough(before in prop::collection::vec(1_u32..6, 0..20), weight in 1_u32..6) {
            let mut bucket = Bucket::default();
            for weight in before {
                let _ = bucket.take(RATE, weight, 0);
            }
            if let Err(wait) = bucket.take(RATE, weight, 0) {
                let later = u64::try_from(wait.as_micros()).expect("short");
                prop_assert!(bucket.take(RATE, weight, later - 1).is_err());
                prop_assert!(bucket.take(RATE, weight, later).is_ok());
            }
        }

        #[test]
        fn videos_are_counted_roughly(videos in prop::collection::hash_set(any::<u64>(), 1..900)) {
            let mut behaviour = Behaviour::default();
            for video in &videos {
                behaviour.note(Act { unlikes: false, device: None, video: *video }, &BOUNDS, 1);
            }
            let (counted, real) = (f64::from(behaviour.distinct()), videos.len() as f64);
            prop_assert!((counted - real).abs() <= real * 0.15 + 8.0, "{counted} for {real}");
        }
    }
}
