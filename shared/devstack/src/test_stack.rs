//! One stack for all tests of a process, or of a whole run.

use std::path::Path;
use std::sync::{Mutex, OnceLock};

use crate::config::TestConfig;
use crate::database::TestDatabase;
use crate::keys::DevKeys;
use crate::stack::{Stack, StackAddress, StackSpec};

/// The servers that tests share. Each test takes databases and prefixes of its own.
///
/// Its methods panic when the stack does not work: a test has nothing else to do then.
#[derive(Debug)]
pub struct TestStack {
    address: StackAddress,
    keys: DevKeys,
}

/// Environment variable with the path of `stack.json`, set by `cargo dev test`.
const VARIABLE: &str = "LIKEWISE_TEST_STACK";

impl TestStack {
    /// The stack of this run: the one that `cargo dev test` started, or else one of this process, which ends with it.
    pub fn get() -> &'static Self {
        static SHARED: OnceLock<TestStack> = OnceLock::new();
        // A static is never dropped. Where the children are not tied to us, the next start ends them.
        static OWN: Mutex<Option<Stack>> = Mutex::new(None);
        SHARED.get_or_init(|| {
            if let Some(path) = std::env::var_os(VARIABLE) {
                let address = StackAddress::read(Path::new(&path)).expect("the stack of this test run");
                let keys = DevKeys::open(&address.keys()).expect("the keys of this test run");
                return Self { address, keys };
            }
            let stack = Stack::start(StackSpec::default()).unwrap_or_else(|error| refuse(&error));
            let shared = Self::of(&stack);
            if let Ok(mut own) = OWN.lock() {
                *own = Some(stack);
            }
            shared
        })
    }

    /// The same helpers on a stack of the test's own, whose servers it may kill.
    pub fn of(stack: &Stack) -> Self {
        let address = stack.address().clone();
        let keys = DevKeys::open(&address.keys()).expect("the keys of a started stack");
        Self { address, keys }
    }

    /// A fresh database on the first server.
    pub async fn database(&self) -> TestDatabase {
        let admin = self.address.postgres.first().expect("a stack has PostgreSQL");
        TestDatabase::create(admin, &self.unique("t")).await.expect("a fresh database")
    }

    /// Address of NATS.
    pub fn nats_url(&self) -> &str {
        &self.address.nats
    }

    /// Address of Redis.
    pub fn redis_url(&self) -> &str {
        &self.address.redis
    }

    /// A name that no other test has: `prefix` and twelve hexadecimal digits.
    pub fn unique(&self, prefix: &str) -> String {
        format!("{prefix}{:012x}", rand::random::<u64>() >> 16)
    }

    /// The development keys.
    pub fn keys(&self) -> &DevKeys {
        &self.keys
    }

    /// Where everything answers.
    pub fn address(&self) -> &StackAddress {
        &self.address
    }

    /// A complete configuration on a fresh database with prefixes of its own.
    pub async fn config(&self) -> TestConfig {
        TestConfig::create(&self.address, &self.keys, &self.unique("t")).await.expect("a configuration")
    }
}

#[expect(clippy::panic, reason = "a test without its servers can only say why")]
fn refuse(error: &anyhow::Error) -> Stack {
    panic!("the development stack does not start: {error:#}")
}
