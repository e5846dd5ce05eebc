//! Who used the processors during a measurement, read from /proc; where there is none, nothing is said.

use std::fs;

/// Times so far, in clock ticks.
#[derive(Clone, Debug)]
pub(crate) struct Cpu {
    whole: u64,
    idle: u64,
    own: u64,
    service: u64,
    process: u32,
}

impl Cpu {
    /// Now, with the service that runs as `process`.
    pub(crate) fn now(process: u32) -> Option<Self> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        let times: Vec<u64> =
            text.lines().next()?.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
        let idle = times.get(3)? + times.get(4)?;
        let (own, service) = (used_by(std::process::id())?, used_by(process)?);
        Some(Self { whole: times.iter().sum(), idle, own, service, process })
    }

    /// What was used since, in per cent of all cores.
    pub(crate) fn since(&self) -> Option<String> {
        let now = Self::now(self.process)?;
        let whole = now.whole.saturating_sub(self.whole).max(1);
        let share = |then: u64, now: u64| now.saturating_sub(then) * 100 / whole;
        let busy = 100 - share(self.idle, now.idle).min(100);
        let (own, service) = (share(self.own, now.own), share(self.service, now.service));
        let rest = busy.saturating_sub(own + service);
        Some(format!(
            "of all cores {busy} % were busy: service {service} %, load generator {own} %, the rest (stores, others) {rest} %"
        ))
    }
}

fn used_by(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may hold blanks; what follows its bracket does not.
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}
