//! `stillframe-server`: configuration, signals, exit codes.
#![forbid(unsafe_code)]
// No client, file or configuration may bring the process down.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable))]

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use stillframe_engine::config::{from_args, settings_help, Config, Start};
use stillframe_engine::log;
use stillframe_engine::server::Server;
use stillframe_server::app::Running;
use stillframe_server::maintenance;

const USAGE: &str = "\
Usage: stillframe-server [/path/to/redis.conf] [options] [-]
       stillframe-server - (read config from stdin)
       stillframe-server -v or --version
       stillframe-server -h or --help
       stillframe-server [/path/to/redis.conf] [options] --check-config
       stillframe-server --check FILE (reads every page of a page file; exits with 2 if some are damaged)
       stillframe-server --salvage FILE --to DUMP [options] (writes what can be read into an RDB file, lists the rest)

Examples:
       stillframe-server (run the server with default conf)
       stillframe-server /etc/redis/6379.conf
       stillframe-server --port 7777
       stillframe-server --port 7777 --save \"\"
       stillframe-server /etc/myredis.conf --loglevel verbose -
";

/// Set in the environment of the process that `daemonize yes` starts.
const DAEMON_VARIABLE: &str = "STILLFRAME_DAEMON";

/// Set to a seed by `stillframe-bench count`, never where data is served: see [`Settings::counted_seed`].
///
/// [`Settings::counted_seed`]: stillframe_engine::config::Settings::counted_seed
const COUNTED_VARIABLE: &str = "STILLFRAME_COUNTED";

fn main() -> ExitCode {
    let args: Vec<String> =
        std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    match from_args(&args) {
        Ok(Start::Serve(config)) => serve(*config),
        Ok(Start::Checked(config)) => {
            println!("The configuration is valid.");
            config.ignored().for_each(|note| println!("{note}"));
            ExitCode::SUCCESS
        }
        Ok(Start::CheckFile(file)) => maintenance::check(&file),
        Ok(Start::Salvage(file, dump, config)) => maintenance::salvage(&file, &dump, &config.settings),
        Ok(Start::Version) => {
            println!(
                "Stillframe server v={} (speaks the protocol of Redis 7.0.15)",
                env!("CARGO_PKG_VERSION")
            );
            ExitCode::SUCCESS
        }
        Ok(Start::Help) => {
            print!("{USAGE}{}", settings_help());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(mut config: Config) -> ExitCode {
    if config.settings.daemonize && std::env::var_os(DAEMON_VARIABLE).is_none() {
        return start_daemon();
    }
    if let Err(error) = prepare(&mut config) {
        log::warning(&error);
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    config.ignored().for_each(log::warning);
    config.settings.counted_seed = counted_seed();
    let pidfile = config.settings.pidfile.clone();
    let is_supervised = config.settings.supervised;
    log_start();
    if std::env::var_os(DAEMON_VARIABLE).is_some() {
        // Leaves the terminal's session; fails only for a process that leads one already.
        let _ = rustix::process::setsid();
    }
    stillframe_store::heap::map_large_blocks();
    // Before the server listens: a signal that comes early is kept for it.
    let signals = match Signals::new([SIGINT, SIGTERM, SIGHUP, SIGXFSZ]) {
        Ok(signals) => signals,
        Err(error) => {
            log::warning(format!("Can't handle signals: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let mut running = match Running::start(config) {
        Ok(running) => running,
        Err(error) => {
            log::warning(error.to_string());
            if let Some(port) = error.refused_port() {
                log::warning(format!("Failed listening on port {port} (TCP), aborting."));
            }
            return ExitCode::FAILURE;
        }
    };
    let server = running.server.clone();
    log::notice(format!("Running mode=standalone, port={}.", server.config().settings.port));
    log::notice("Server initialized");
    let handle = move || handle_signals(&server, signals);
    if let Err(error) = std::thread::Builder::new().name("signals".into()).spawn(handle) {
        log::warning(format!("Can't handle signals: {error}"));
        return ExitCode::FAILURE;
    }
    pidfile.as_deref().into_iter().for_each(write_pidfile);
    let on_ready = move || {
        if is_supervised {
            notify_supervisor();
        }
        log::notice("Ready to accept connections");
    };
    if let Err(error) = running.load(on_ready) {
        log::warning(format!("Can't start the thread that loads the data: {error}"));
        return ExitCode::FAILURE;
    }
    let result = running.wait();
    if let Some(path) = pidfile {
        let _ = std::fs::remove_file(path);
    }
    if let Err(error) = result {
        log::warning(error.to_string());
        return ExitCode::FAILURE;
    }
    log::warning("Stillframe is now ready to exit, bye bye...");
    ExitCode::SUCCESS
}

/// Harnesses look for these words, and for `Server initialized` after them.
fn log_start() {
    log::notice(format!("Stillframe {} is starting, PID: {}", env!("CARGO_PKG_VERSION"), std::process::id()));
    log::notice("Configuration loaded");
}

fn write_pidfile(path: &Path) {
    if let Err(error) = std::fs::write(path, format!("{}\n", std::process::id())) {
        log::warning(format!("Can't write the pid file {}: {error}", path.display()));
    }
}

/// The seed of the environment, if it has one. Its effects are said: to serve data with it is a mistake.
fn counted_seed() -> Option<u64> {
    let seed = std::env::var(COUNTED_VARIABLE).ok()?.parse().ok()?;
    log::warning(format!(
        "{COUNTED_VARIABLE} is set: nothing is random, so that clients can choose keys whose hashes collide, and there is room \
         for a few gigabytes only. It is for counting instructions"
    ));
    Some(seed)
}

/// Log and working directory; `dir` is where all relative paths start, as in Redis.
fn prepare(config: &mut Config) -> Result<(), String> {
    log::set_level(config.settings.loglevel);
    log::hear_the_store();
    if let Some(dir) = &config.settings.dir {
        std::env::set_current_dir(dir).map_err(|error| {
            format!("Can't chdir to '{}': {error}. Create it, or choose another 'dir'", dir.display())
        })?;
    }
    let dir =
        std::env::current_dir().map_err(|error| format!("Can't find the working directory: {error}"))?;
    config.set_dir(&dir);
    if let Some(path) = &config.settings.logfile {
        log::set_file(path)
            .map_err(|error| format!("Can't open the log file: {}: {error}", path.display()))?;
    }
    Ok(())
}

/// Runs the same command line again, detached from the terminal.
fn start_daemon() -> ExitCode {
    use std::process::{Command, Stdio};
    let child = std::env::current_exe().and_then(|exe| {
        Command::new(exe)
            .args(std::env::args_os().skip(1))
            .env(DAEMON_VARIABLE, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    });
    match child {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Can't start in the background: {error}");
            ExitCode::FAILURE
        }
    }
}

fn handle_signals(server: &Arc<Server>, mut signals: Signals) {
    for signal in &mut signals {
        // A file size limit is an error of the write that meets it, not the end of the server.
        if matches!(signal, SIGHUP | SIGXFSZ) {
            continue;
        }
        let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
        if server.is_stopping.load(Ordering::Acquire) && signal == SIGINT {
            log::warning("You insist... exiting now.");
            std::process::exit(1);
        }
        if server.loading.is_on() {
            log::warning("Received shutdown signal during loading, scheduling shutdown.");
        } else {
            log::warning(format!("Received {name} scheduling shutdown..."));
        }
        let config = server.config();
        let settings = &config.settings;
        let flags = if signal == SIGINT { settings.on_sigint } else { settings.on_sigterm };
        server.shut_down(flags.how, flags.even_if_failed, None);
    }
}

/// Tells systemd that the server is ready, if it asked for that.
fn notify_supervisor() {
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET") {
        let send = || std::os::unix::net::UnixDatagram::unbound()?.send_to(b"READY=1\n", path);
        if let Err(error) = send() {
            log::warning(format!("Can't notify the supervisor: {error}"));
        }
    }
}
