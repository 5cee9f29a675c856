class A:
    def f(self):
        x = 1
        return x

    def g(self):
        x = 1
        return x


class B:
    def f(self):
        x = 1
        return x
