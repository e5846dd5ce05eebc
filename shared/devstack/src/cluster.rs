//! Makes a Redis Cluster of members that do not know each other yet.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::redis::ask;
use crate::server::Server;
use crate::tied::pause;

/// Hash slots of every Redis Cluster.
const SLOTS: usize = 16384;
/// How long the members may take to agree.
const AGREE_BOUND: Duration = Duration::from_secs(30);

/// Divides the slots evenly, introduces the members, and waits until all agree.
pub(crate) fn form(members: &[Server]) -> Result<()> {
    for (number, (member, (from, to))) in members.iter().zip(slots(members.len())).enumerate() {
        ask(member.address(), &format!("CLUSTER ADDSLOTSRANGE {from} {to}"))?;
        // Different epochs from the start, so that no two members claim to be the newest.
        ask(member.address(), &format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1))?;
    }
    let first = members.first().context("a cluster without members")?;
    for other in members.iter().skip(1) {
        let bus = bus_port(other)?;
        ask(first.address(), &format!("CLUSTER MEET 127.0.0.1 {} {bus}", other.port()))?;
    }
    let begin = Instant::now();
    loop {
        let behind = members.iter().find(|member| !agrees(member, members.len()));
        let Some(behind) = behind else { return Ok(()) };
        if begin.elapsed() > AGREE_BOUND {
            bail!("{} does not agree to its cluster:\n{}", behind.name(), behind.log_tail());
        }
        pause(Duration::from_millis(50));
    }
}

fn agrees(member: &Server, members: usize) -> bool {
    ask(member.address(), "CLUSTER INFO").is_ok_and(|info| {
        info.contains("cluster_state:ok") && info.contains(&format!("cluster_known_nodes:{members}\r"))
    })
}

fn bus_port(member: &Server) -> Result<u16> {
    let nodes = ask(member.address(), "CLUSTER NODES")?;
    let bus = nodes.split('@').nth(1).map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    bus.and_then(|bus| bus.parse().ok()).with_context(|| format!("no bus port in {nodes:?}"))
}

fn slots(members: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..members).map(move |number| (SLOTS * number / members, SLOTS * (number + 1) / members - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_one_member() {
        for members in 1..6 {
            let mut next = 0;
            for (from, to) in slots(members) {
                assert_eq!(from, next);
                next = to + 1;
            }
            assert_eq!(next, SLOTS);
        }
    }
}
