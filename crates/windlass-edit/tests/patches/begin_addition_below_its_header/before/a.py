import a

def f():
    pass
