func a() {
	one()
	two()
}

func b() {
	three()
	four()
}
