fn area(w: u32, h: u32) -> u32 {
    w * h
}

fn main() {
    println!("{}", area(2, 3));
}
