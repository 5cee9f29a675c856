func a() {
	one()
	TWO()
}

func b() {
	THREE()
	four()
}
