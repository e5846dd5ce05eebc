//! All services in one process. `--help` tells what it takes.

fn main() -> std::process::ExitCode {
    likewise_kit::run::main_of::<likewise_standalone::Standalone>()
}
