//! Named places where a debug build kills itself, so that tests can prove what a kill at that place leaves behind.
//!
//! `LIKEWISE_CRASH_POINT=publisher.after_ack` ends the process with SIGKILL when the place is passed;
//! `publisher.after_ack:5` when it is passed for the fifth time. Release builds contain none of it.

/// Ends the process here if a test asked for it. Nothing in release builds.
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {
        #[cfg(debug_assertions)]
        $crate::crash::passed($name);
    };
}

/// Whether the place is armed, for code that must take apart what it usually sends in one flight. Never in release
/// builds.
#[must_use]
pub fn armed(name: &str) -> bool {
    #[cfg(debug_assertions)]
    return debug::armed(name);
    #[cfg(not(debug_assertions))]
    {
        let _ = name;
        false
    }
}

/// Counts a pass and kills the process on the armed one. Called by [`crash_point!`].
#[cfg(debug_assertions)]
pub fn passed(name: &str) {
    debug::passed(name);
}

#[cfg(debug_assertions)]
mod debug {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Armed {
        name: String,
        passes_left: AtomicU64,
    }

    fn point() -> Option<&'static Armed> {
        static POINT: OnceLock<Option<Armed>> = OnceLock::new();
        POINT
            .get_or_init(|| {
                let text = std::env::var("LIKEWISE_CRASH_POINT").ok()?;
                let (name, passes) = text.split_once(':').unwrap_or((&text, "1"));
                let passes = passes.parse().unwrap_or(1);
                Some(Armed { name: name.to_owned(), passes_left: AtomicU64::new(passes) })
            })
            .as_ref()
    }

    pub(super) fn armed(name: &str) -> bool {
        point().is_some_and(|point| point.name == name)
    }

    pub(super) fn passed(name: &str) {
        let Some(point) = point().filter(|point| point.name == name) else { return };
        if point.passes_left.fetch_sub(1, Ordering::SeqCst) == 1 {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }
}
