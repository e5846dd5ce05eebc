//! Admission: token buckets per account, device and address, decided in this process.
//!
//! Promises: a decision waits for nothing; memory is bounded, and what is forgotten first is what is idle. Processes tell each
//! other in the background, and only of keys that use much of their limit; while Redis is away each process goes by what it
//! sees itself.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use likewise_domain::id::UserId;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::cache::Exchange;
use crate::config::Settings;
use crate::limits::{Act, Behaviour, Bounds, Bucket, Kind, Rate};
use crate::metrics::LimitMetrics;
use crate::publisher::Signals;

/// Parts of each table; callers of different keys rarely meet.
const PARTS: usize = 64;
/// Keys told to others at once.
const EXCHANGED_MAX: usize = 2_000;
/// Length of a window in which all processes add up what they admitted.
const WINDOW: Duration = Duration::from_secs(10);
/// Keeps hashes of limited keys apart from other hashes.
const FIELD_DOMAIN: &[u8] = b"likewise limit\0";

/// Who acts, from where. Borrowed: nothing of it is kept but in the tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) account: &'a str,
    pub(crate) device: Option<&'a str>,
    pub(crate) address: Option<IpAddr>,
}

/// Refused for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limited {
    pub(crate) kind: Kind,
    pub(crate) wait: Duration,
}

#[derive(Default)]
struct Entry {
    bucket: Bucket,
    /// Admitted here and not told to others yet.
    admitted: u32,
    /// What we told, and what all told, in the window of the last exchange.
    window: u64,
    told: u64,
    others: u64,
}

type Part<T> = Mutex<HashMap<Box<str>, T>>;

/// The limits of one process.
pub(crate) struct Limits {
    rates: [Rate; 3],
    tables: [Vec<Part<Entry>>; 3],
    behaviours: Vec<Part<Behaviour>>,
    bounds: Bounds,
    tighten: u32,
    share: u64,
    part_max: usize,
    hasher: RandomState,
    began_at: Instant,
    metrics: LimitMetrics,
    signals: Signals,
}

fn locked<T>(part: &Part<T>) -> MutexGuard<'_, HashMap<Box<str>, T>> {
    // Nothing panics while it holds the lock.
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Limits {
    pub(crate) fn new(settings: &Settings, metrics: LimitMetrics, signals: Signals) -> Self {
        fn table<T>() -> Vec<Part<T>> {
            (0..PARTS).map(|_| Mutex::default()).collect()
        }
        Self {
            rates: settings.rates(),
            tables: [table(), table(), table()],
            behaviours: table(),
            bounds: settings.bounds(),
            tighten: settings.behaviour_tighten,
            share: u64::from(settings.limits_share_percent) * 10,
            part_max: (settings.limits_keys_max / PARTS).max(1),
            hasher: RandomState::new(),
            began_at: Instant::now(),
            metrics,
            signals,
        }
    }

    fn now(&self) -> u64 {
        // One window from zero, so that nothing is "before".
        u64::try_from(self.began_at.elapsed().as_micros()).unwrap_or(u64::MAX / 2) + self.bounds.window
    }

    fn part(&self, key: &str) -> usize {
        usize::try_from(self.hasher.hash_one(key) % PARTS as u64).unwrap_or(0)
    }

    /// Admits so many commands, or says which limit stands against them.
    pub(crate) fn check(&self, caller: Caller<'_>, commands: u32) -> Result<(), Limited> {
        let now = self.now();
        let is_tight = locked(&self.behaviours[self.part(caller.account)])
            .get(caller.account)
            .is_some_and(|behaviour| behaviour.is_tight(&self.bounds, now));
        let device = caller.device.map(|device| format!("{}/{device}", caller.account));
        let address = caller.address.map(|address| network(address).to_string());
        let keys = [Some(caller.account), device.as_deref(), address.as_deref()];
        for (kind, key) in Kind::ALL.into_iter().zip(keys) {
            let mut rate = self.rates[kind as usize];
            let Some(key) = key.filter(|_| rate.per_s > 0) else { continue };
            if kind == Kind::Account && is_tight {
                rate = rate.tightened(self.tighten);
            }
            let mut part = locked(&self.tables[kind as usize][self.part(key)]);
            make_room(&mut part, self.part_max, |entry| entry.bucket.is_idle(now));
            let entry = entry(&mut part, key);
            if let Err(wait) = entry.bucket.take(rate, commands, now) {
                self.metrics.limited(kind);
                return Err(Limited { kind, wait });
            }
            entry.admitted = entry.admitted.saturating_add(commands);
        }
        Ok(())
    }

    /// Notes what an account does.
    pub(crate) fn note(&self, user: &UserId, unlikes: bool, device: Option<&[u8; 16]>, video: &str) {
        let account = user.as_str();
        let now = self.now();
        let device = device.map(|hash| self.hasher.hash_one(hash) | 1);
        let act = Act { unlikes, device, video: self.hasher.hash_one(video) };
        let mut part = locked(&self.behaviours[self.part(account)]);
        make_room(&mut part, self.part_max, |behaviour| behaviour.is_past(&self.bounds, now));
        if let Some(signal) = entry(&mut part, account).note(act, &self.bounds, now) {
            self.signals.observe(user, signal);
        }
    }

    /// Tells other processes and hears of them, until the process stops.
    pub(crate) async fn exchange(&self, exchange: Exchange, every: Duration, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
            let window = unix_micros() / u64::try_from(WINDOW.as_micros()).unwrap_or(1);
            let hot = self.hot(window);
            if hot.is_empty() {
                continue;
            }
            let fields: Vec<(String, u64)> =
                hot.iter().map(|hot| (field(hot.kind, &hot.key), u64::from(hot.admitted))).collect();
            match exchange.add(window, &fields, every).await {
                Ok(sums) => hot.iter().zip(sums).for_each(|(hot, sum)| self.heard(hot, sum, window)),
                Err(error) => {
                    self.metrics.exchange_failed();
                    tracing::debug!(%error, "other processes were not told what was admitted");
                }
            }
        }
    }

    /// Keys above the share of their limit, and what was admitted of them since the last exchange.
    fn hot(&self, window: u64) -> Vec<Hot> {
        let now = self.now();
        let mut hot = Vec::new();
        for kind in Kind::ALL {
            let rate = self.rates[kind as usize];
            for part in self.tables[kind as usize].iter().filter(|_| rate.per_s > 0) {
                for (key, entry) in locked(part).iter_mut() {
                    let admitted = std::mem::take(&mut entry.admitted);
                    if entry.bucket.fill(rate, now) < self.share || hot.len() >= EXCHANGED_MAX {
                        continue;
                    }
                    if entry.window != window {
                        (entry.window, entry.told, entry.others) = (window, 0, 0);
                    }
                    entry.told += u64::from(admitted);
                    hot.push(Hot { kind, key: key.clone(), admitted });
                }
            }
        }
        hot
    }

    /// What all processes admitted of a key in the window.
    fn heard(&self, hot: &Hot, sum: u64, window: u64) {
        let mut part = locked(&self.tables[hot.kind as usize][self.part(&hot.key)]);
        let Some(entry) = part.get_mut(&hot.key).filter(|entry| entry.window == window) else { return };
        let others = sum.saturating_sub(entry.told);
        let new = others.saturating_sub(entry.others);
        entry.others = others;
        let weight = u32::try_from(new).unwrap_or(u32::MAX);
        entry.bucket.charge(self.rates[hot.kind as usize], weight, self.now());
    }
}

struct Hot {
    kind: Kind,
    key: Box<str>,
    admitted: u32,
}

/// The entry of a key; made when there is none.
fn entry<'a, T: Default>(part: &'a mut HashMap<Box<str>, T>, key: &str) -> &'a mut T {
    // Looked up twice where it is new, and not copied where it is known.
    if !part.contains_key(key) {
        part.insert(key.into(), T::default());
    }
    part.get_mut(key).unwrap_or_else(|| unreachable!("just made"))
}

/// Forgets what is idle when a part is full, and somebody if nobody is.
fn make_room<T>(part: &mut HashMap<Box<str>, T>, most: usize, is_idle: impl Fn(&T) -> bool) {
    if part.len() < most {
        return;
    }
    part.retain(|_, value| !is_idle(value));
    if part.len() >= most
        && let Some(key) = part.keys().next().cloned()
    {
        part.remove(&key);
    }
}

/// What an address is limited by: a household has a whole IPv6 network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or_else(
            || {
                let [a, b, c, d, ..] = six.segments();
                IpAddr::from([a, b, c, d, 0, 0, 0, 0])
            },
            IpAddr::V4,
        ),
    }
}

/// A key as others may see it.
fn field(kind: Kind, key: &str) -> String {
    let hash = Sha256::new().chain_update(FIELD_DOMAIN).chain_update([kind as u8]).chain_update(key).finalize();
    hash[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unix_micros() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(0)
}
