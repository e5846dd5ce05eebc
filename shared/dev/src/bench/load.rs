//! A closed loop of callers: each sends its next call when the last one was answered.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

/// What one call came to.
#[derive(Debug)]
pub(crate) enum Told {
    /// It was answered as expected and changed something.
    Changed,
    /// It was answered as expected and changed nothing.
    Same,
    /// Any other answer, or none.
    Wrong(String),
}

/// What a loop came to.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Calls with the expected answer.
    pub(crate) right: usize,
    /// Those that changed something.
    pub(crate) changed: usize,
    /// Calls with another answer, or none.
    pub(crate) wrong: usize,
    /// What the first of them was told.
    pub(crate) first_wrong: Option<String>,
    /// From the first call to the last answer.
    pub(crate) took: Duration,
    latencies: Vec<Duration>,
}

impl Load {
    /// Right answers per second.
    pub(crate) fn per_s(&self) -> f64 {
        rate(self.right, self.took)
    }

    /// Changes per second.
    pub(crate) fn changed_per_s(&self) -> f64 {
        rate(self.changed, self.took)
    }

    /// The latency that `share` of the calls did not exceed, in milliseconds.
    pub(crate) fn latency_ms(&self, share: Share) -> f64 {
        let rank = (self.latencies.len() * usize::from(share.0)).div_ceil(100);
        self.latencies.get(rank.saturating_sub(1)).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3)
    }

    /// One more answer.
    pub(crate) fn add(&mut self, told: Told, latency: Duration) {
        match told {
            Told::Changed => {
                self.right += 1;
                self.changed += 1;
            }
            Told::Same => self.right += 1,
            Told::Wrong(what) => {
                self.wrong += 1;
                self.first_wrong.get_or_insert(what);
            }
        }
        self.latencies.push(latency);
    }

    /// The answers of another loop.
    pub(crate) fn join(&mut self, other: Self) {
        self.right += other.right;
        self.changed += other.changed;
        self.wrong += other.wrong;
        self.first_wrong = self.first_wrong.take().or(other.first_wrong);
        self.latencies.extend(other.latencies);
    }
}

impl Load {
    /// No more answers come.
    pub(crate) fn conclude(&mut self, took: Duration) {
        self.took = took;
        self.latencies.sort_unstable();
    }

    /// Counts the commands in the calls instead of the calls, if every one was answered as expected.
    pub(crate) fn counting_commands(mut self, commands: usize) -> Self {
        if self.wrong == 0 {
            self.right = commands;
        }
        self
    }
}

/// A percentage of the calls, from the fastest on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share(pub(crate) u8);

/// `count` per second.
pub(crate) fn rate(count: usize, took: Duration) -> f64 {
    u32::try_from(count).map_or(f64::NAN, f64::from) / took.as_secs_f64()
}

/// Makes `count` calls, `in_flight` at once. `call` gets the number of the caller and that of the call.
pub(crate) async fn closed_loop<C, F>(count: usize, in_flight: usize, call: C) -> Result<Load>
where
    C: Fn(usize, usize) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Told> + Send,
{
    let next = Arc::new(AtomicUsize::new(0));
    let begin = Instant::now();
    let callers = (0..in_flight).map(|caller| {
        let (next, call) = (Arc::clone(&next), call.clone());
        tokio::spawn(async move {
            let mut load = Load::default();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return load;
                }
                let sent = Instant::now();
                let told = call(caller, number).await;
                load.add(told, sent.elapsed());
            }
        })
    });
    let mut whole = Load::default();
    for caller in callers.collect::<Vec<_>>() {
        whole.join(caller.await?);
    }
    whole.conclude(begin.elapsed());
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_call_is_made_once_and_counted_by_its_answer() {
        let call = |_, number: usize| async move {
            match number % 10 {
                0 => Told::Wrong("no".to_owned()),
                1..4 => Told::Same,
                _ => Told::Changed,
            }
        };
        let load = closed_loop(1_000, 16, call).await.unwrap();
        assert_eq!((load.right, load.changed, load.wrong), (900, 600, 100));
        assert_eq!(load.latencies.len(), 1_000);
    }

    #[test]
    fn a_percentile_is_the_latency_of_a_call() {
        let latencies = (1..=200).map(Duration::from_millis).collect();
        let load = Load { latencies, ..Load::default() };
        assert!((load.latency_ms(Share(50)) - 100.0).abs() < 1e-9);
        assert!((load.latency_ms(Share(99)) - 198.0).abs() < 1e-9);
    }
}
