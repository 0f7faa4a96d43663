import com.fasterxml.jackson.core.json.JsonReadFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.lang.reflect.*;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.*;

/** Makes a request out of its fields as relaxed JSON, `{groupId: 'g', topics: [{name: 't'}]}`; what isn't named has Kafka's default. */
final class Make {
    private static final JsonMapper JSON = JsonMapper.builder().enable(JsonReadFeature.ALLOW_SINGLE_QUOTES, JsonReadFeature.ALLOW_UNQUOTED_FIELD_NAMES).build();

    static Message request(ApiKeys key, String fields) {
        try {
            Message made = key.messageType.newRequest();
            fill(made, JSON.readTree(fields));
            return made;
        } catch (Exception e) {
            throw new IllegalArgumentException(key + " out of " + fields, e);
        }
    }

    private static void fill(Object made, JsonNode fields) throws Exception {
        for (var names = fields.fieldNames(); names.hasNext(); ) {
            String name = names.next(), setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
            Method set = Arrays.stream(made.getClass().getMethods()).filter(m -> m.getName().equals(setter) && m.getParameterCount() == 1).findFirst()
                .orElseThrow(() -> new NoSuchMethodException(made.getClass() + "." + setter));
            set.invoke(made, value(set.getGenericParameterTypes()[0], fields.get(name)));
        }
    }

    @SuppressWarnings("unchecked")
    private static Object value(Type type, JsonNode of) throws Exception {
        if (of.isNull()) return null;
        if (type == String.class) return of.asText();
        if (type == int.class || type == Integer.class) return of.asInt();
        if (type == long.class || type == Long.class) return of.asLong();
        if (type == short.class || type == Short.class) return (short) of.asInt();
        if (type == byte.class || type == Byte.class) return (byte) of.asInt();
        if (type == boolean.class) return of.asBoolean();
        if (type == byte[].class) return of.asText().getBytes();
        if (type == Uuid.class) return Uuid.fromString(of.asText());
        Collection<Object> all;
        Type element;
        if (type instanceof ParameterizedType list) {
            all = new ArrayList<>();
            element = list.getActualTypeArguments()[0];
        } else {
            Class<?> own = (Class<?>) type;
            if (!Collection.class.isAssignableFrom(own)) return made(own, of);
            all = (Collection<Object>) own.getConstructor().newInstance();
            element = ((ParameterizedType) own.getGenericSuperclass()).getActualTypeArguments()[0];
        }
        for (JsonNode one : of) all.add(value(element, one));
        return all;
    }

    private static Object made(Class<?> type, JsonNode of) throws Exception {
        Object made = type.getConstructor().newInstance();
        fill(made, of);
        return made;
    }
}
