//! Runs searches.
fn main() {
    use cutwater_model::{Fault, Protocol, catalogue, search};
    let args: Vec<String> = std::env::args().collect();
    let clock = cutwater_platform::Platform::real().clock;
    if args.iter().any(|a| a == "--faults") {
        for fault in Fault::ALL {
            let at = clock.monotonic();
            let v = search(&Protocol::new(catalogue::finds(*fault)), 3_000_000);
            println!("{:?} {:?} states {} {:?}", fault, v.broken.as_ref().map(|b| b.trace.len()), v.states, clock.monotonic() - at);
            if let Some(b) = v.broken.filter(|_| args.iter().any(|a| a == "-v")) {
                for t in b.trace { println!("    {t}"); }
                println!("  => {}: {}", b.violation.promise, b.violation.found);
            }
        }
        return;
    }
    let all = if args.iter().any(|a| a == "--all") { catalogue::large() } else { catalogue::small() };
    for config in all {
        let config = if args.iter().any(|a| a == "--needs") { cutwater_model::Config { barriers_wait: true, ..config } } else { config };
        if args.len() > 2 && !args[2..].iter().any(|a| config.name == a.as_str()) { continue; }
        let at = clock.monotonic();
        let v = search(&Protocol::new(config.clone()), 30_000_000);
        println!("{}: states {} steps {} finals {} depth {} exhausted {} {:?}", config.name, v.states, v.steps, v.finals, v.depth, v.exhausted, clock.monotonic() - at);
        if let Some(b) = v.broken {
            for t in b.trace { println!("    {t}"); }
            println!("  => {}: {}", b.violation.promise, b.violation.found);
        }
    }
}
