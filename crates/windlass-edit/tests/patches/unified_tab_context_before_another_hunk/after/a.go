func a() {
	ONE()
	two()
}

func b() {
	THREE()
	four()
}
