//! The helper for programs that embed the engine and do not want to call [`windlass_sandbox::supervise`] in their
//! own. The `windlass` binary is its own helper.

fn main() -> std::process::ExitCode {
    #[cfg(target_os = "linux")]
    return windlass_sandbox::supervise();
    #[cfg(not(target_os = "linux"))]
    std::process::ExitCode::from(2)
}
