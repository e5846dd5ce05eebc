//! The reverse index. `--help` tells what it takes.

fn main() -> std::process::ExitCode {
    likewise_kit::run::main_of::<likewise_reverse_index::ReverseIndex>()
}
