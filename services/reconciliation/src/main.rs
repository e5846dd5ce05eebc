//! The reconciliation service. `--help` tells what it takes.

fn main() -> std::process::ExitCode {
    likewise_kit::run::main_of::<likewise_reconciliation::Reconciliation>()
}
