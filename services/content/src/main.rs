//! The content service.

fn main() -> std::process::ExitCode {
    likewise_kit::run::main_of::<likewise_content::Content>()
}
